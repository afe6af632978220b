#include "train/served_links.h"

#include <fmt/format.h>

#include "base/error.h"

namespace distbelief {
namespace {

constexpr std::chrono::milliseconds kBetweenWatches{10};
constexpr int kAnsweringThreads = 2;
constexpr std::size_t kMostServerBytes = Fabric::kMaxMessageBytes - (1U << 20);  // with versions a push is one message

}  // namespace

ServedLinks::ServedLinks(const ServedTeam& team, const ParameterTable& table, const UpdateRule& rule,
                         std::span<const float> values, ParameterServer::Options options, Hooks hooks)
    : team_(team), hooks_(std::move(hooks)), map_(table, team.servers) {
  std::vector<std::uint64_t> ids;
  for (int i = 0; i < team.servers; ++i) {
    ids.push_back(static_cast<std::uint64_t>(i));
  }
  const Placement placement(map_, ids);
  const Rank self = team.fabric->rank();
  if (team.is_server()) {
    std::vector<ServerPort::Client> clients;
    for (int rank = 0; rank < team.workers; ++rank) {
      if (Rank{rank} != self) {
        clients.push_back({.rank = Rank{rank}});
      }
    }
    if (!team.leads()) {
      clients.push_back({.rank = team.leader(), .role = ClientRole::leader});
    }
    const int number = team.number();
    if (const std::int64_t bytes = placement.bytes_of(number); static_cast<std::size_t>(bytes) > kMostServerBytes) {
      throw InputError(
          fmt::format("--servers {}: a server would hold {} MB of parameters; take more, so that none holds "
                      "over {}",
                      team.servers, bytes >> 20, kMostServerBytes >> 20));
    }
    server_ =
        std::make_unique<ParameterServer>(table, map_, placement.blocks_of(number), rule, values, std::move(options));
    port_ = std::make_unique<ServerPort>(*team.fabric, *server_, clients,
                                         ServerPort::Options{.view = team.view,
                                                             .threads = kAnsweringThreads,
                                                             .patience = team.patience,
                                                             .wake = [this] { link_.wake(); },
                                                             .thread_begins = team.side_thread_begins,
                                                             .heard = hooks_.heard,
                                                             .work = hooks_.work});
  }
  const auto client_of = [&](ClientRole role) {
    std::vector<ServerClient::Server> places;
    for (int i = 0; i < team.servers; ++i) {
      ServerClient::Server place = {.rank = team.rank_of_server(i), .blocks = placement.blocks_of(i)};
      if (place.rank == self) {
        place.here = [this](const RequestHead& request, std::span<const std::byte> in, std::span<std::byte> out) {
          return port_->answer_here(request, in, out);
        };
      }
      places.push_back(std::move(place));
    }
    return std::make_unique<ServerClient>(
        *team.fabric, map_, places,
        ServerClient::Options{
            .view = team.view, .incarnation = team.incarnation, .role = role, .wake = [this] { link_.wake(); }});
  };
  if (team.is_worker()) {
    client_ = client_of(ClientRole::worker);
  }
  if (team.leads()) {
    leader_ = client_of(ClientRole::leader);
  }
  if (server_ != nullptr) {  // not where evaluations are: others wait for the dead's samples
    watching_ = std::jthread([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        watch_for_losses();
        std::this_thread::sleep_for(kBetweenWatches);
      }
    });
  }
  const auto advance = [this] {
    bool moved = port_ != nullptr && port_->advance();
    moved = (client_ != nullptr && client_->advance()) || moved;
    return (leader_ != nullptr && leader_->advance()) || moved;
  };
  const auto in_a_message = [this] {
    return (port_ != nullptr && port_->in_a_message()) || (client_ != nullptr && client_->in_a_message()) ||
           (leader_ != nullptr && leader_->in_a_message());
  };
  link_.start(*team.fabric, advance, in_a_message, team.side_thread_begins);
}

ServedLinks::~ServedLinks() {
  watching_ = {};
  link_.stop();
}

void ServedLinks::server_changed() {
  (void)server_->flush_full();  // numbers that are not finite stay, and the next push is told
  port_->server_changed();
}

void ServedLinks::watch_for_losses() {
  if (team_.inside) {
    if ((team_.workers_left && team_.workers_left() < team_.workers) || (team_.leader_left && team_.leader_left())) {
      port_->let_all_go();  // links tell all others
    }
    return;
  }
  if (!team_.newly_lost) {
    return;
  }
  for (const std::uint64_t incarnation : team_.newly_lost()) {
    server_->fence(incarnation);
    if (hooks_.lost) {
      hooks_.lost(incarnation);
    }
    server_changed();
    if (team_.fenced) {
      team_.fenced(incarnation, server_->open_leases());
    }
  }
}

}  // namespace distbelief
