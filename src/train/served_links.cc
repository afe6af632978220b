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

constexpr int kMostShelves = 60;  // that tags can tell apart
/// Every shelf is a message for each push and fetch, which costs some 30 us of both ends: a small part of the time that
/// is spent on so many parameters.
constexpr std::int64_t kLeastShelfFloats = 48 * 1024;

std::vector<std::uint64_t> shelf_ids(int shelves) {
  std::vector<std::uint64_t> ids;
  for (int i = 0; i < shelves; ++i) {
    ids.push_back(static_cast<std::uint64_t>(i));
  }
  return ids;
}

}  // namespace

int shelves_of(const ServedTeam& team, std::int64_t floats) {
  if (!team.servers_may_change || team.parts > 1) {  // each worker knows only how large its own part is
    return team.servers;
  }
  if (team.shelves > 0) {
    const std::int64_t most = std::min<std::int64_t>(kMostShelves, floats / BlockMap::kSmallest);
    return team.servers * std::max(1, std::min(team.shelves, static_cast<int>(most)) / team.servers);
  }
  // Two, three, four or six servers can share twelve evenly, and others roughly.
  const bool many = team.servers > 3;
  for (const int each : {12 / team.servers, 6 / team.servers, 2 / team.servers, many ? 3 : 0, many ? 2 : 0}) {
    if (each > 1 && team.servers * each <= kMostShelves && floats >= team.servers * each * kLeastShelfFloats) {
      return team.servers * each;
    }
  }
  return team.servers;
}

ServedLinks::Area::Area(const Space& space, const ServedTeam& team, int shelves)
    : table(*space.table), map(*space.table, team.servers), placement(map, shelf_ids(shelves)) {}

ServedLinks::ServedLinks(const ServedTeam& team, const std::vector<Space>& spaces, const UpdateRule& rule,
                         const ParameterServer::Options& options, Hooks hooks)
    : team_(team),
      shelves_of_part_(team.servers),
      rule_(rule),
      options_(options),
      hooks_(std::move(hooks)),
      areas_(spaces.size()) {
  check(spaces.size() == static_cast<std::size_t>(team.parts) && spaces.size() < kViews, "a space for each part");
  if (replicated()) {
    shelves_of_part_ = shelves_of(team, team.parts > 1 ? 0 : spaces.front().table->size());
    check(static_cast<std::uint32_t>(shelf_count()) < kViews, "tags can tell all shelves apart");
    team.routes->cut(shelf_count());
    held_ = team.routes->first();
    if (team.is_late_server) {
      const std::vector<Ownership> tables = team.routes->since(*held_, seen_events_);
      held_ = tables.empty() ? *held_ : tables.back();
    }
  }
  for (int server = 0; server < team.servers; ++server) {
    known_servers_.insert(team.rank_of_server(server).value);
  }
  for (const Rank server : team.servers_before) {
    known_servers_.insert(server.value);
  }
  linked_ = known_servers_;
  late_workers_ = team.late_before;
  for (std::size_t part = 0; part < spaces.size(); ++part) {
    if (spaces[part].table == nullptr) {
      continue;
    }
    areas_[part] = std::make_unique<Area>(spaces[part], team, shelves_of_part_);
    const bool founds = team.is_server() && !team.is_late_server;
    for (int i = 0; founds && i < shelves_of_part_; ++i) {
      const int number = static_cast<int>(part) * shelves_of_part_ + i;
      const Ownership::Holders holders = held_ ? held_->of(number) : Ownership::Holders{.primary = i};
      if (holders.primary == team.number()) {
        OrderedServer::Options own = {.replicated = replicated()};
        if (holders.backup != Ownership::kNobody) {
          own.backup = team.rank_of_server(holders.backup);
        }
        Shelf& shelf = make_shelf(number, spaces[part].values, std::move(own));
        open_port(shelf);
        moving_.push_back(&shelf);
      } else if (holders.backup == team.number()) {
        Shelf& shelf = make_shelf(number, spaces[part].values, {.replicated = true});
        shelf.follows = holders.primary;
        begin_to_hear(shelf, team.rank_of_server(holders.primary));
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
    told_bytes_ = held_ ? bytes_moved(*held_) : 0;
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
    for (const std::unique_ptr<ReplicaSender>* sender : {&shelf->sender, &shelf->copy_sender, &shelf->old_sender}) {
      moved = (*sender != nullptr && (*sender)->advance()) || moved;
    }
    moved = (shelf->receiver != nullptr && shelf->receiver->advance()) || moved;
  }
  return moved;
}

bool ServedLinks::in_a_message() {
  return std::ranges::any_of(clients_, [](ServerClient* client) { return client->in_a_message(); }) ||
         std::ranges::any_of(moving_, [](Shelf* shelf) {
           return (shelf->port != nullptr && shelf->port->in_a_message()) ||
                  (shelf->sender != nullptr && shelf->sender->in_a_message()) ||
                  (shelf->copy_sender != nullptr && shelf->copy_sender->in_a_message()) ||
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

ServedLinks::Shelf* ServedLinks::find_shelf(int number) {
  const std::scoped_lock lock(shelves_mutex_);
  const auto found = std::ranges::find_if(shelves_, [&](const auto& shelf) { return shelf->number == number; });
  return found == shelves_.end() ? nullptr : found->get();
}

ServedLinks::Shelf& ServedLinks::make_shelf(int number, std::span<const float> values, OrderedServer::Options options) {
  const Area& area = *areas_[part_of(number)];
  if (const std::int64_t bytes = bytes_of(number); static_cast<std::size_t>(bytes) > kMostServerBytes) {
    throw InputError(
        fmt::format("--servers {}: a server would hold {} MB of parameters; take more, so that none holds "
                    "over {}",
                    team_.servers, (bytes >> 20) * (shelves_of_part_ / team_.servers),
                    (kMostServerBytes >> 20) * static_cast<std::size_t>(shelves_of_part_ / team_.servers)));
  }
  Shelf* shelf = find_shelf(number);
  auto made = shelf == nullptr ? std::make_unique<Shelf>() : nullptr;
  shelf = made ? made.get() : shelf;
  const std::scoped_lock lock(shelves_mutex_);
  shelf->number = number;
  shelf->server = std::make_unique<ParameterServer>(
      area.table, area.map, area.placement.blocks_of(number % shelves_of_part_), rule_, values, options_);
  if (number == 0) {
    options.heard = hooks_.heard;
    options.save_heard = hooks_.save_heard;
    options.restore_heard = hooks_.restore_heard;
  }
  options.wake = [this] { link_.wake(); };
  shelf->ordered = std::make_unique<OrderedServer>(*shelf->server, std::move(options));
  if (made) {
    shelves_.push_back(std::move(made));
  }
  return *shelf;
}

void ServedLinks::open_port(Shelf& shelf) {
  std::vector<ServerPort::Client> clients;
  for (int rank = 0; rank < team_.workers; ++rank) {
    if (Rank{rank} != team_.fabric->rank() && concerns(shelf, Rank{rank})) {
      clients.push_back({.rank = Rank{rank}});
    }
  }
  for (const ServedTeam::LostWorker& late : late_workers_) {
    if (late.rank != team_.fabric->rank() && concerns(shelf, late.rank)) {
      clients.push_back({.rank = late.rank});
    }
  }
  for (const int server : replicated() ? known_servers_ : std::set<int>{team_.leader().value}) {
    if (server != team_.fabric->rank().value) {  // that leads, or may lead one day
      clients.push_back({.rank = Rank{server}, .role = ClientRole::leader});
    }
  }
  const int of_a_server = shelves_of_part_ / team_.servers;
  ServerPort::Options answers = {.view = view_of(shelf.number),
                                 .threads = of_a_server > 1 ? 1 : kAnsweringThreads,
                                 .patience = team_.patience,
                                 .wake = [this] { link_.wake(); },
                                 .thread_begins = team_.side_thread_begins,
                                 .few_floats = ServerPort::kFewFloats / static_cast<std::size_t>(of_a_server)};
  if (shelf.number == 0) {
    answers.work = hooks_.work;
  }
  if (shelf.ordered->log().is_whole()) {
    shelf.sender = sender_of(shelf, shelf.ordered->log());
  }
  if (shelf.port == nullptr) {
    auto port = std::make_unique<ServerPort>(*team_.fabric, *shelf.ordered, clients, std::move(answers));
    const std::scoped_lock lock(shelves_mutex_);
    shelf.port = std::move(port);
  } else {
    shelf.port->attach(*shelf.ordered);
    shelf.port->open();
  }
  shelf.open_port = shelf.port.get();
}

/// Without two holders each server has one shelf of each part.
std::uint32_t ServedLinks::view_of(int number) const {
  return view_of_shelf(team_.view, replicated() ? static_cast<std::size_t>(number) : part_of(number));
}

std::unique_ptr<ServerClient> ServedLinks::client_of(std::size_t part, ClientRole role) {
  std::vector<ServerClient::Server> places;
  const std::optional<Ownership> now = replicated() ? std::optional(team_.routes->now()) : std::nullopt;
  const int first = static_cast<int>(part) * shelves_of_part_;
  for (int i = 0; i < shelves_of_part_; ++i) {
    const int primary = now ? now->of(first + i).primary : Ownership::kNobody;
    const int server = primary != Ownership::kNobody ? primary : i % team_.servers;
    ServerClient::Server place = {.rank = team_.rank_of_server(server), .blocks = areas_[part]->placement.blocks_of(i)};
    if (now && !linked_.contains(place.rank.value)) {
      place.rank = team_.fabric->rank();  // it came since: this process, asked first, says that it is another
    }
    if (place.rank == team_.fabric->rank() && !replicated()) {
      place.here = [shelf = find_shelf(first + i)](const RequestHead& request, std::span<const std::byte> in,
                                                   std::span<std::byte> out) {
        return shelf->open_port.load()->begin_here(request, in, out);
      };
    }
    places.push_back(std::move(place));
  }
  ServerClient::Options options = {
      .view = view_of(first), .incarnation = incarnation_of(role, team_.incarnation), .role = role};
  options.wake = [this] { link_.wake(); };
  if (replicated()) {
    options.holder = [this, first](std::size_t place) { return holder_of(first + static_cast<int>(place)); };
    options.here = [this, first](std::size_t place, const RequestHead& request, std::span<const std::byte> in,
                                 std::span<std::byte> out) -> ServerClient::ReplyHere {
      const Shelf* own = find_shelf(first + static_cast<int>(place));
      if (ServerPort* port = own == nullptr ? nullptr : own->open_port.load(); port != nullptr) {
        return port->begin_here(request, in, out);
      }
      return [] { return ReplyHead{.status = ReplyHead::Status::moved}; };
    };
  }
  return std::make_unique<ServerClient>(*team_.fabric, areas_[part]->map, places, std::move(options));
}

std::optional<Rank> ServedLinks::holder_of(int number) {
  const std::optional<int> holder = team_.routes->holder(number);
  if (!holder || !broken().empty()) {
    return std::nullopt;
  }
  const Rank rank = team_.rank_of_server(*holder);
  if (!team_.is_server() && team_.newcomers) {
    for (const ServedTeam::Newcomer& newcomer : team_.newcomers()) {
      newcomer.link();
      if (newcomer.rank.value < team_.fabric->size()) {
        linked_.insert(newcomer.rank.value);
      }
    }
  }
  if (!linked_.contains(rank.value) && rank != team_.fabric->rank()) {
    return Rank{};
  }
  if (rank == team_.fabric->rank()) {
    const Shelf* own = find_shelf(number);
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
      if (shelf->server != nullptr) {
        shelf->server->end();
      }
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
    if (shelf->port != nullptr) {  // or it is to be handed over, and who asked before waits for its backup
      shelf->port->let_all_go();
    }
  }
}

std::string ServedLinks::broken() {
  const std::scoped_lock lock(shelves_mutex_);
  return broken_;
}

std::optional<std::vector<PushId>> ServedLinks::open_leases() const {
  std::map<std::uint64_t, std::uint64_t> next;  // by lease
  std::map<std::uint64_t, std::size_t> known;   // by how many shelves
  std::size_t shelves = 0;
  const std::scoped_lock lock(shelves_mutex_);
  for (const std::unique_ptr<Shelf>& shelf : shelves_) {
    // A backup's tell too: it has less than its primary, which may be dead when it should tell.
    if (shelf->ordered == nullptr || !shelf->ordered->whole()) {
      continue;
    }
    ++shelves;
    for (const PushId& open : shelf->server->open_leases()) {
      const auto [at, fresh] = next.emplace(open.lease, open.seq);
      at->second = std::min(at->second, open.seq);
      ++known[open.lease];
    }
  }
  if (shelves == 0) {
    return std::nullopt;
  }
  std::vector<PushId> open;
  for (const auto& [lease, seq] : next) {
    open.push_back({lease, known[lease] == shelves ? seq : 0});  // some have nothing of it yet
  }
  return open;
}

bool ServedLinks::is_over() {
  const auto workers = static_cast<std::size_t>(team_.workers);
  return !broken().empty() || (team_.leader_left && team_.leader_left()) ||
         (team_.ends_with_a_worker() && team_.workers_left && team_.workers_left().incarnations.size() < workers);
}

void ServedLinks::watch() {
  if (team_.inside && is_over()) {
    let_all_go();  // links tell all others
  }
  if (team_.ends_with_a_worker()) {
    return;
  }
  const auto lost_workers = team_.newly_lost ? team_.newly_lost() : std::vector<ServedTeam::LostWorker>();
  if (replicated()) {
    watch_shelves();  // known after who is lost: see watch_for_lost_workers()
  }
  watch_for_newcomers();
  watch_for_lost_workers(lost_workers);
}

std::uint64_t ServedLinks::pushes() {
  std::uint64_t most = 0;
  const std::scoped_lock lock(shelves_mutex_);
  for (const std::unique_ptr<Shelf>& shelf : shelves_) {
    most = std::max(most, shelf->server == nullptr ? 0 : shelf->server->pushes());
  }
  return most;
}

std::vector<std::string> ServedLinks::take_news() {
  const std::scoped_lock lock(shelves_mutex_);
  return std::exchange(news_, {});
}

}  // namespace distbelief
