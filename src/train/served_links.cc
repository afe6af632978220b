#include "train/served_links.h"

#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <map>

#include "base/check.h"
#include "base/error.h"

namespace distbelief {
namespace {

constexpr std::chrono::milliseconds kBetweenWatches{10};
constexpr int kAnsweringThreads = 2;
constexpr std::size_t kMostServerBytes = Fabric::kMaxMessageBytes - (1U << 20);  // with versions a push is one message

std::vector<std::uint64_t> server_ids(int servers) {
  std::vector<std::uint64_t> ids;
  for (int i = 0; i < servers; ++i) {
    ids.push_back(static_cast<std::uint64_t>(i));
  }
  return ids;
}

}  // namespace

ServedLinks::Area::Area(const Space& space, const ServedTeam& team)
    : table(*space.table), map(*space.table, team.servers), placement(map, server_ids(team.servers)) {}

ServedLinks::ServedLinks(const ServedTeam& team, const std::vector<Space>& spaces, const UpdateRule& rule,
                         const ParameterServer::Options& options, Hooks hooks)
    : team_(team), rule_(rule), options_(options), hooks_(std::move(hooks)), areas_(spaces.size()) {
  check(spaces.size() == static_cast<std::size_t>(team.parts) && spaces.size() < kViews, "a space for each part");
  check(!replicated() || (team.parts == 1 && !team.inside && static_cast<std::uint32_t>(team.servers) < kViews),
        "shelves have two holders only of a whole network, and apart from workers");
  if (replicated()) {
    held_ = team.routes->first();
  }
  for (std::size_t part = 0; part < spaces.size(); ++part) {
    if (spaces[part].table == nullptr) {
      continue;
    }
    areas_[part] = std::make_unique<Area>(spaces[part], team);
    for (int number = 0; team.is_server() && number < team.servers; ++number) {
      const Ownership::Holders holders = held_ ? held_->of(number) : Ownership::Holders{.primary = number};
      if (holders.primary == team.number()) {
        OrderedServer::Options own = {.replicated = replicated()};
        if (holders.backup != Ownership::kNobody) {
          own.backup = team.rank_of_server(holders.backup);
        }
        Shelf& shelf = make_shelf(part, number, spaces[part].values, std::move(own));
        open_port(shelf);
        moving_.push_back(&shelf);
      } else if (holders.backup == team.number()) {
        Shelf& shelf = make_shelf(part, number, spaces[part].values, {.replicated = true});
        shelf.receiver = std::make_unique<ReplicaReceiver>(
            *team.fabric, *shelf.ordered, team.rank_of_server(holders.primary),
            view_of_shelf(team.view, static_cast<std::size_t>(number)), [this] { link_.wake(); });
        moving_.push_back(&shelf);
      }
    }
    if (team.leads()) {
      areas_[part]->leader = client_of(part, ClientRole::leader);
      clients_.push_back(areas_[part]->leader.get());
    }
  }
  if (team.is_worker()) {
    client_ = client_of(static_cast<std::size_t>(team.part_of(team.fabric->rank())), ClientRole::worker);
    clients_.push_back(client_.get());
  }
  if (team.is_server()) {  // not where evaluations are: others wait for the dead's samples
    watching_ = std::jthread([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        // Asked first: who is gone by then is fenced before it is answered.
        const auto question = team_.lease_question ? team_.lease_question() : std::nullopt;
        watch();
        if (question) {
          answer(*question);
        }
        std::this_thread::sleep_for(kBetweenWatches);
      }
    });
  }
  link_.start(
      *team.fabric, [this] { return advance(); }, [this] { return in_a_message(); }, team.side_thread_begins);
}

ServedLinks::~ServedLinks() {
  watching_ = {};
  link_.stop();
}

bool ServedLinks::advance() {
  bool moved = false;
  if (has_todo_.exchange(false)) {
    std::vector<std::function<void()>> todo;
    {
      const std::scoped_lock lock(todo_mutex_);
      todo.swap(todo_);
    }
    for (const std::function<void()>& one : todo) {
      one();
    }
    moved = true;
  }
  for (ServerClient* client : clients_) {
    moved = client->advance() || moved;
  }
  for (Shelf* shelf : moving_) {
    moved = (shelf->port != nullptr && shelf->port->advance()) || moved;
    moved = (shelf->sender != nullptr && shelf->sender->advance()) || moved;
    moved = (shelf->receiver != nullptr && shelf->receiver->advance()) || moved;
  }
  return moved;
}

bool ServedLinks::in_a_message() {
  return std::ranges::any_of(clients_, [](ServerClient* client) { return client->in_a_message(); }) ||
         std::ranges::any_of(moving_, [](Shelf* shelf) {
           return (shelf->port != nullptr && shelf->port->in_a_message()) ||
                  (shelf->sender != nullptr && shelf->sender->in_a_message()) ||
                  (shelf->receiver != nullptr && shelf->receiver->in_a_message());
         });
}

void ServedLinks::on_link_thread(const std::function<void()>& what) {
  std::promise<void> done;
  {
    const std::scoped_lock lock(todo_mutex_);
    todo_.emplace_back([&] {
      what();
      done.set_value();
    });
  }
  has_todo_ = true;
  link_.wake();
  done.get_future().wait();  // for as long as the thread of the fabric takes for a turn
}

ServedLinks::Shelf* ServedLinks::find_shelf(std::size_t part, int number) {
  const std::scoped_lock lock(shelves_mutex_);
  const auto found =
      std::ranges::find_if(shelves_, [&](const auto& shelf) { return shelf->part == part && shelf->number == number; });
  return found == shelves_.end() ? nullptr : found->get();
}

ServedLinks::Shelf& ServedLinks::make_shelf(std::size_t part, int number, std::span<const float> values,
                                            OrderedServer::Options options) {
  const Area& area = *areas_[part];
  if (const std::int64_t bytes = area.placement.bytes_of(number); static_cast<std::size_t>(bytes) > kMostServerBytes) {
    throw InputError(
        fmt::format("--servers {}: a server would hold {} MB of parameters; take more, so that none holds "
                    "over {}",
                    team_.servers, bytes >> 20, kMostServerBytes >> 20));
  }
  auto shelf = std::make_unique<Shelf>();
  shelf->part = part;
  shelf->number = number;
  shelf->server = std::make_unique<ParameterServer>(area.table, area.map, area.placement.blocks_of(number), rule_,
                                                    values, options_);
  if (part == 0 && number == 0) {
    options.heard = hooks_.heard;
    options.save_heard = hooks_.save_heard;
    options.restore_heard = hooks_.restore_heard;
  }
  options.wake = [this] { link_.wake(); };
  shelf->ordered = std::make_unique<OrderedServer>(*shelf->server, std::move(options));
  const std::scoped_lock lock(shelves_mutex_);
  return *shelves_.emplace_back(std::move(shelf));
}

void ServedLinks::open_port(Shelf& shelf) {
  std::vector<ServerPort::Client> clients;
  for (int rank = 0; rank < team_.workers; ++rank) {
    if (Rank{rank} != team_.fabric->rank() && team_.part_of(Rank{rank}) == static_cast<int>(shelf.part)) {
      clients.push_back({.rank = Rank{rank}});
    }
  }
  for (int server = 0; server < (replicated() ? team_.servers : 1); ++server) {  // that lead, or may lead one day
    if (server != team_.number()) {
      clients.push_back({.rank = team_.rank_of_server(server), .role = ClientRole::leader});
    }
  }
  const std::size_t apart = replicated() ? static_cast<std::size_t>(shelf.number) : shelf.part;
  const std::uint32_t view = view_of_shelf(team_.view, apart);
  ServerPort::Options answers = {.view = view,
                                 .threads = kAnsweringThreads,
                                 .patience = team_.patience,
                                 .wake = [this] { link_.wake(); },
                                 .thread_begins = team_.side_thread_begins};
  if (shelf.part == 0 && shelf.number == 0) {
    answers.work = hooks_.work;
  }
  if (replicated()) {
    shelf.sender = std::make_unique<ReplicaSender>(*team_.fabric, shelf.ordered->log(), view);
  }
  shelf.port = std::make_unique<ServerPort>(*team_.fabric, *shelf.ordered, clients, std::move(answers));
  shelf.open_port = shelf.port.get();
}

std::unique_ptr<ServerClient> ServedLinks::client_of(std::size_t part, ClientRole role) {
  std::vector<ServerClient::Server> places;
  for (int i = 0; i < team_.servers; ++i) {
    ServerClient::Server place = {.rank = team_.rank_of_server(i), .blocks = areas_[part]->placement.blocks_of(i)};
    if (place.rank == team_.fabric->rank()) {
      place.here = [shelf = find_shelf(part, i)](const RequestHead& request, std::span<const std::byte> in,
                                                 std::span<std::byte> out) {
        return shelf->open_port.load()->answer_here(request, in, out);
      };
    }
    places.push_back(std::move(place));
  }
  ServerClient::Options options = {
      .view = view_of_shelf(team_.view, part), .incarnation = team_.incarnation, .role = role, .wake = [this] {
        link_.wake();
      }};
  if (replicated()) {
    options.holder = [this](std::size_t shelf) { return holder_of(shelf); };
    options.here = [this](std::size_t shelf, const RequestHead& request, std::span<const std::byte> in,
                          std::span<std::byte> out) {
      return find_shelf(0, static_cast<int>(shelf))->open_port.load()->answer_here(request, in, out);
    };
  }
  return std::make_unique<ServerClient>(*team_.fabric, areas_[part]->map, places, std::move(options));
}

std::optional<Rank> ServedLinks::holder_of(std::size_t shelf) {
  const std::optional<int> holder = team_.routes->holder(static_cast<int>(shelf));
  if (!holder || !broken().empty()) {
    return std::nullopt;
  }
  const Rank rank = team_.rank_of_server(*holder);
  if (rank == team_.fabric->rank()) {
    const Shelf* own = find_shelf(0, static_cast<int>(shelf));
    if (own == nullptr || own->open_port == nullptr) {
      return Rank{};
    }
  }
  return rank;
}

void ServedLinks::end_server() {
  {
    const std::scoped_lock lock(shelves_mutex_);
    for (const std::unique_ptr<Shelf>& shelf : shelves_) {
      shelf->server->end();
    }
  }
  server_changed();
}

void ServedLinks::server_changed() {
  const std::scoped_lock lock(shelves_mutex_);
  for (const std::unique_ptr<Shelf>& shelf : shelves_) {
    if (ServerPort* port = shelf->open_port; port != nullptr) {
      (void)shelf->server->flush_full();  // numbers that are not finite stay, and the next push is told
      port->server_changed();
    }
  }
}

void ServedLinks::let_all_go() {
  const std::scoped_lock lock(shelves_mutex_);
  for (const std::unique_ptr<Shelf>& shelf : shelves_) {
    if (ServerPort* port = shelf->open_port; port != nullptr) {
      port->let_all_go();
    }
  }
}

bool ServedLinks::leads() {
  if (!replicated() || team_.leads() || team_.routes->now().leader() != team_.number()) {
    return false;
  }
  const Shelf* first = find_shelf(0, 0);
  return first != nullptr && first->open_port != nullptr;
}

void ServedLinks::begin_leading() {
  areas_.front()->leader = client_of(0, ClientRole::leader);
  on_link_thread([this] { clients_.push_back(areas_.front()->leader.get()); });
}

std::uint64_t ServedLinks::tell_backup(RequestHead::Kind kind, const std::string& body) {
  std::uint64_t position = 0;
  if (replicated()) {
    (void)find_shelf(0, 0)->ordered->answer({.kind = kind, .body_bytes = body.size()}, std::as_bytes(std::span(body)),
                                            {}, position);
  }
  return position;
}

void ServedLinks::keep_beginning(const std::string& books, const std::string& words) {
  (void)tell_backup(RequestHead::Kind::books, books);
  const std::uint64_t position = tell_backup(RequestHead::Kind::note, words);
  if (replicated()) {
    (void)find_shelf(0, 0)->ordered->log().wait_until_durable(position, Clock::now() + team_.patience);
  }
}

std::string ServedLinks::note() { return find_shelf(0, 0)->ordered->note(); }

std::string ServedLinks::broken() {
  const std::scoped_lock lock(shelves_mutex_);
  return broken_;
}

std::vector<PushId> ServedLinks::open_leases() const {
  std::map<std::uint64_t, std::uint64_t> next;  // by lease
  std::map<std::uint64_t, std::size_t> known;   // by how many shelves
  std::size_t shelves = 0;
  const std::scoped_lock lock(shelves_mutex_);
  for (const std::unique_ptr<Shelf>& shelf : shelves_) {
    // A backup's tell too: it has less than its primary, which may be dead when it should tell.
    if (shelf->open_port == nullptr && !shelf->ordered->whole()) {
      continue;
    }
    ++shelves;
    for (const PushId& open : shelf->server->open_leases()) {
      const auto [at, fresh] = next.emplace(open.lease, open.seq);
      at->second = std::min(at->second, open.seq);
      ++known[open.lease];
    }
  }
  std::vector<PushId> open;
  for (const auto& [lease, seq] : next) {
    open.push_back({lease, known[lease] == shelves ? seq : 0});  // some have nothing of it yet
  }
  return open;
}

void ServedLinks::answer(const LeaseQuestion& question) {
  if (question.for_plan) {
    const bool leads = replicated() ? team_.routes->now().leader() == team_.number() : team_.leads();
    if (hooks_.plan && leads) {
      team_.plan_leases(hooks_.plan(question), question.number);
    }
    return;
  }
  std::vector<LeaseReport> reports;
  {
    const std::scoped_lock lock(shelves_mutex_);
    for (const std::unique_ptr<Shelf>& shelf : shelves_) {
      if (shelf->open_port == nullptr && !shelf->ordered->whole()) {
        continue;  // as in open_leases()
      }
      const SavedLeases known = shelf->server->leases();
      LeaseReport& report = reports.emplace_back();
      report.low_water = known.low_water;
      for (const SavedLease& lease : known.leases) {
        report.leases.push_back({.id = lease.id,
                                 .epoch = lease.samples.epoch,
                                 .first = lease.samples.first,
                                 .count = lease.samples.count,
                                 .next_push = lease.next_push});
      }
    }
  }
  team_.report_leases(reports, question.number);
}

void ServedLinks::watch() {
  if (team_.inside) {
    if ((team_.workers_left && team_.workers_left() < team_.workers) || (team_.leader_left && team_.leader_left())) {
      let_all_go();  // links tell all others
    }
    return;
  }
  if (replicated()) {
    watch_for_lost_servers();
  }
  watch_for_lost_workers();
}

bool ServedLinks::settled() {
  const Ownership now = team_.routes->now();
  for (int number = 0; number < team_.servers; ++number) {
    const Ownership::Holders holders = now.of(number);
    const Shelf* shelf = find_shelf(0, number);
    if ((holders.primary == team_.number() && (shelf == nullptr || shelf->open_port == nullptr)) ||
        (holders.backup == team_.number() && (shelf == nullptr || !shelf->ordered->whole()))) {
      return false;
    }
  }
  return true;
}

void ServedLinks::tell_whole_copies() {
  std::erase_if(incomplete_, [&](const Shelf* shelf) {
    const bool whole = shelf->ordered->whole();
    if (whole) {
      const std::scoped_lock lock(shelves_mutex_);
      news_.push_back(fmt::format("server {} has its copy of what server {} holds", team_.fabric->rank().value,
                                  team_.rank_of_server(held_->of(shelf->number).primary).value));
    }
    return whole;
  });
}

void ServedLinks::watch_for_lost_servers() {
  tell_whole_copies();
  const Ownership now = team_.routes->now();
  if (now.losses() == held_->losses() || !broken().empty()) {
    return;
  }
  const int self = team_.number();
  const auto rank_of = [&](int server) {
    return server == Ownership::kNobody ? std::nullopt : std::optional(team_.rank_of_server(server));
  };
  for (int number = 0; number < team_.servers; ++number) {
    const Ownership::Holders before = held_->of(number);
    const Ownership::Holders after = now.of(number);
    if (before == after) {
      continue;
    }
    Shelf* shelf = find_shelf(0, number);
    if (before.primary == self) {
      shelf->ordered->change_backup(rank_of(after.backup));
      link_.wake();
    } else if (after.primary == self) {
      if (shelf == nullptr || !shelf->ordered->whole()) {
        const std::scoped_lock lock(shelves_mutex_);
        broken_ = "both servers that held a part of the parameters are lost";
        return;
      }
      promote(*shelf, rank_of(after.backup));
    } else if (after.backup == self && before.backup != self) {
      const std::vector<float> none(static_cast<std::size_t>(areas_.front()->table.size()));
      Shelf& made = make_shelf(0, number, none, {.replicated = true, .whole = false});
      on_link_thread([&] {
        made.receiver = std::make_unique<ReplicaReceiver>(
            *team_.fabric, *made.ordered, team_.rank_of_server(after.primary),
            view_of_shelf(team_.view, static_cast<std::size_t>(number)), [this] { link_.wake(); });
        moving_.push_back(&made);
      });
      incomplete_.push_back(&made);
    }
  }
  if (now.leader() == self) {
    tell_news(now);
  }
  held_ = now;
}

void ServedLinks::tell_news(const Ownership& now) {
  const std::scoped_lock lock(shelves_mutex_);
  for (int number = 0; number < team_.servers; ++number) {
    const Ownership::Holders before = held_->of(number);
    const Ownership::Holders after = now.of(number);
    if (before == after || after.primary == Ownership::kNobody) {
      continue;
    }
    const std::string copied =
        after.backup == Ownership::kNobody
            ? "there is no other server to hold a copy of it"
            : fmt::format("server {} gets a copy of it", team_.rank_of_server(after.backup).value);
    news_.push_back(before.primary == after.primary ? fmt::format("what server {} holds has lost its copy: {}",
                                                                  team_.rank_of_server(after.primary).value, copied)
                                                    : fmt::format("server {} goes on with what server {} held: {}",
                                                                  team_.rank_of_server(after.primary).value,
                                                                  team_.rank_of_server(before.primary).value, copied));
  }
}

std::vector<std::string> ServedLinks::take_news() {
  const std::scoped_lock lock(shelves_mutex_);
  return std::exchange(news_, {});
}

void ServedLinks::promote(Shelf& shelf, std::optional<Rank> backup) {
  on_link_thread([&] { shelf.receiver.reset(); });
  for (const ServedTeam::LostWorker& lost : lost_workers_) {
    (void)fence(shelf, lost.incarnation);  // whatever its primary has still heard of it
  }
  shelf.ordered->change_backup(backup);
  on_link_thread([&] { open_port(shelf); });
}

std::uint64_t ServedLinks::fence(Shelf& shelf, std::uint64_t incarnation) {
  std::uint64_t position = 0;
  (void)shelf.ordered->answer({.kind = RequestHead::Kind::fence, .incarnation = incarnation}, {}, {}, position);
  if (ServerPort* port = shelf.open_port; port != nullptr) {
    port->server_changed();
  }
  return position;
}

void ServedLinks::watch_for_lost_workers() {
  if (!team_.newly_lost) {
    return;
  }
  for (const ServedTeam::LostWorker& lost : team_.newly_lost()) {
    lost_workers_.push_back(lost);
    Fence& made = fences_.emplace_back(Fence{.incarnation = lost.incarnation});
    std::vector<Shelf*> own;
    {
      const std::scoped_lock lock(shelves_mutex_);
      for (const std::unique_ptr<Shelf>& shelf : shelves_) {
        if (shelf->open_port != nullptr) {
          own.push_back(shelf.get());
        }
      }
    }
    for (Shelf* shelf : own) {
      if (shelf->part == static_cast<std::size_t>(team_.part_of(lost.rank))) {
        made.positions.emplace_back(shelf, fence(*shelf, lost.incarnation));
      }
    }
    if (hooks_.lost) {
      hooks_.lost(lost.incarnation);
    }
    for (Shelf* shelf : own) {
      shelf->open_port.load()->server_changed();  // there may be something to do for who waits
    }
  }
  // What is told has to stay true, whoever of the two holders is lost.
  std::erase_if(fences_, [&](const Fence& fence) {
    const bool durable = std::ranges::all_of(
        fence.positions, [](const auto& at) { return at.first->ordered->log().durable(at.second); });
    if (durable && team_.fenced) {
      team_.fenced(fence.incarnation, open_leases());
    }
    return durable;
  });
}

}  // namespace distbelief
