#include "train/served_links.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/check.h"
#include "base/error.h"

namespace distbelief {
namespace {

constexpr std::chrono::milliseconds kBetweenWatches{10};
constexpr int kAnsweringThreads = 2;
constexpr std::size_t kMostServerBytes = Fabric::kMaxMessageBytes - (1U << 20);  // with versions a push is one message
constexpr std::uint32_t kViews = 64;  ///< that tags of servers can tell from each other

std::vector<std::uint64_t> server_ids(int servers) {
  std::vector<std::uint64_t> ids;
  for (int i = 0; i < servers; ++i) {
    ids.push_back(static_cast<std::uint64_t>(i));
  }
  return ids;
}

/// The leader speaks to a server about several parts at the same time.
std::uint32_t view_of(const ServedTeam& team, std::size_t part) {
  return (team.view + static_cast<std::uint32_t>(part)) % kViews;
}

}  // namespace

ServedLinks::Shelf::Shelf(const Space& space, const ServedTeam& team)
    : map(*space.table, team.servers), placement(map, server_ids(team.servers)) {}

ServedLinks::ServedLinks(const ServedTeam& team, const std::vector<Space>& spaces, const UpdateRule& rule,
                         const ParameterServer::Options& options, Hooks hooks)
    : team_(team), hooks_(std::move(hooks)), shelves_(spaces.size()) {
  check(spaces.size() == static_cast<std::size_t>(team.parts) && spaces.size() < kViews, "a space for each part");
  for (std::size_t part = 0; part < spaces.size(); ++part) {
    if (spaces[part].table == nullptr) {
      continue;
    }
    shelves_[part] = std::make_unique<Shelf>(spaces[part], team);
    if (team.is_server()) {
      serve(part, spaces[part], rule, options);
    }
    if (team.leads()) {
      shelves_[part]->leader = client_of(part, ClientRole::leader);
    }
  }
  if (team.is_worker()) {
    client_ = client_of(static_cast<std::size_t>(team.part_of(team.fabric->rank())), ClientRole::worker);
  }
  if (team.is_server()) {  // not where evaluations are: others wait for the dead's samples
    watching_ = std::jthread([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        // Asked first: who is gone by then is fenced before it is answered.
        const auto question = team_.lease_question ? team_.lease_question() : std::nullopt;
        watch_for_losses();
        if (question) {
          answer(*question);
        }
        std::this_thread::sleep_for(kBetweenWatches);
      }
    });
  }
  const auto advance = [this] {
    bool moved = client_ != nullptr && client_->advance();
    for (const std::unique_ptr<Shelf>& shelf : shelves_) {
      moved = (shelf != nullptr && shelf->port != nullptr && shelf->port->advance()) || moved;
      moved = (shelf != nullptr && shelf->leader != nullptr && shelf->leader->advance()) || moved;
    }
    return moved;
  };
  const auto in_a_message = [this] {
    return (client_ != nullptr && client_->in_a_message()) ||
           std::ranges::any_of(shelves_, [](const std::unique_ptr<Shelf>& shelf) {
             return shelf != nullptr && ((shelf->port != nullptr && shelf->port->in_a_message()) ||
                                         (shelf->leader != nullptr && shelf->leader->in_a_message()));
           });
  };
  link_.start(*team.fabric, advance, in_a_message, team.side_thread_begins);
}

ServedLinks::~ServedLinks() {
  watching_ = {};
  link_.stop();
}

void ServedLinks::serve(std::size_t part, const Space& space, const UpdateRule& rule,
                        const ParameterServer::Options& options) {
  Shelf& shelf = *shelves_[part];
  std::vector<ServerPort::Client> clients;
  for (int rank = 0; rank < team_.workers; ++rank) {
    if (Rank{rank} != team_.fabric->rank() && team_.part_of(Rank{rank}) == static_cast<int>(part)) {
      clients.push_back({.rank = Rank{rank}});
    }
  }
  if (!team_.leads()) {
    clients.push_back({.rank = team_.leader(), .role = ClientRole::leader});
  }
  const int number = team_.number();
  if (const std::int64_t bytes = shelf.placement.bytes_of(number); static_cast<std::size_t>(bytes) > kMostServerBytes) {
    throw InputError(
        fmt::format("--servers {}: a server would hold {} MB of parameters; take more, so that none holds "
                    "over {}",
                    team_.servers, bytes >> 20, kMostServerBytes >> 20));
  }
  shelf.server = std::make_unique<ParameterServer>(*space.table, shelf.map, shelf.placement.blocks_of(number), rule,
                                                   space.values, options);
  ServerPort::Options answers = {.view = view_of(team_, part),
                                 .threads = kAnsweringThreads,
                                 .patience = team_.patience,
                                 .wake = [this] { link_.wake(); },
                                 .thread_begins = team_.side_thread_begins};
  if (part == 0) {
    answers.heard = hooks_.heard;
    answers.work = hooks_.work;
  }
  shelf.port = std::make_unique<ServerPort>(*team_.fabric, *shelf.server, clients, std::move(answers));
}

std::unique_ptr<ServerClient> ServedLinks::client_of(std::size_t part, ClientRole role) {
  Shelf& shelf = *shelves_[part];
  std::vector<ServerClient::Server> places;
  for (int i = 0; i < team_.servers; ++i) {
    ServerClient::Server place = {.rank = team_.rank_of_server(i), .blocks = shelf.placement.blocks_of(i)};
    if (place.rank == team_.fabric->rank()) {
      place.here = [&shelf](const RequestHead& request, std::span<const std::byte> in, std::span<std::byte> out) {
        return shelf.port->answer_here(request, in, out);
      };
    }
    places.push_back(std::move(place));
  }
  return std::make_unique<ServerClient>(*team_.fabric, shelf.map, places,
                                        ServerClient::Options{.view = view_of(team_, part),
                                                              .incarnation = team_.incarnation,
                                                              .role = role,
                                                              .wake = [this] { link_.wake(); }});
}

void ServedLinks::end_server() {
  for (const std::unique_ptr<Shelf>& shelf : shelves_) {
    shelf->server->end();
  }
  server_changed();
}

void ServedLinks::server_changed() {
  for (const std::unique_ptr<Shelf>& shelf : shelves_) {
    (void)shelf->server->flush_full();  // numbers that are not finite stay, and the next push is told
    shelf->port->server_changed();
  }
}

void ServedLinks::let_all_go() {
  for (const std::unique_ptr<Shelf>& shelf : shelves_) {
    shelf->port->let_all_go();
  }
}

std::vector<PushId> ServedLinks::open_leases() const {
  std::map<std::uint64_t, std::uint64_t> next;  // by lease
  std::map<std::uint64_t, std::size_t> known;   // by how many shelves
  for (const std::unique_ptr<Shelf>& shelf : shelves_) {
    for (const PushId& open : shelf->server->open_leases()) {
      const auto [at, fresh] = next.emplace(open.lease, open.seq);
      at->second = std::min(at->second, open.seq);
      ++known[open.lease];
    }
  }
  std::vector<PushId> open;
  for (const auto& [lease, seq] : next) {
    open.push_back({lease, known[lease] == shelves_.size() ? seq : 0});  // some have nothing of it yet
  }
  return open;
}

void ServedLinks::answer(const LeaseQuestion& question) {
  if (question.for_plan) {
    if (hooks_.plan) {
      team_.plan_leases(hooks_.plan(question), question.number);
    }
    return;
  }
  std::vector<LeaseReport> reports;
  for (const std::unique_ptr<Shelf>& shelf : shelves_) {
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
  team_.report_leases(reports, question.number);
}

void ServedLinks::watch_for_losses() {
  if (team_.inside) {
    if ((team_.workers_left && team_.workers_left() < team_.workers) || (team_.leader_left && team_.leader_left())) {
      let_all_go();  // links tell all others
    }
    return;
  }
  if (!team_.newly_lost) {
    return;
  }
  for (const ServedTeam::LostWorker& lost : team_.newly_lost()) {
    shelves_[static_cast<std::size_t>(team_.part_of(lost.rank))]->server->fence(lost.incarnation);
    if (hooks_.lost) {
      hooks_.lost(lost.incarnation);
    }
    server_changed();
    if (team_.fenced) {
      team_.fenced(lost.incarnation, open_leases());
    }
  }
}

}  // namespace distbelief
