#include "train/served_links.h"

#include <fmt/format.h>

#include "base/error.h"

namespace distbelief {
namespace {

constexpr std::chrono::milliseconds kBetweenFences{10};
constexpr int kAnsweringThreads = 2;
constexpr std::size_t kMostServerBytes = Fabric::kMaxMessageBytes - (1U << 20);  // with versions a push is one message

}  // namespace

ServedLinks::ServedLinks(const ServedTeam& team, const ParameterTable& table, const UpdateRule& rule,
                         std::span<const float> values, ParameterServer::Options options, Heard heard)
    : team_(team), map_(table, team.servers) {
  std::vector<std::uint64_t> ids;
  for (int i = 0; i < team.servers; ++i) {
    ids.push_back(static_cast<std::uint64_t>(i));
  }
  const Placement placement(map_, ids);
  const int self = team.fabric->rank().value;
  if (team.is_server()) {
    std::vector<Rank> clients;
    for (int rank = 0; rank < team.workers + (team.leads() ? 0 : 1); ++rank) {
      clients.push_back(Rank{rank});  // the leader is a client of the other servers
    }
    if (const std::int64_t bytes = placement.bytes_of(self - team.workers);
        static_cast<std::size_t>(bytes) > kMostServerBytes) {
      throw InputError(
          fmt::format("--servers {}: a server would hold {} MB of parameters; take more, so that none holds "
                      "over {}",
                      team.servers, bytes >> 20, kMostServerBytes >> 20));
    }
    server_ = std::make_unique<ParameterServer>(table, map_, placement.blocks_of(self - team.workers), rule, values,
                                                std::move(options));
    port_ = std::make_unique<ServerPort>(*team.fabric, *server_, clients,
                                         ServerPort::Options{.view = team.view,
                                                             .threads = kAnsweringThreads,
                                                             .wake = [this] { link_.wake(); },
                                                             .heard = std::move(heard)});
  }
  if (!team.is_server() || team.leads()) {
    std::vector<ServerClient::Server> places;
    for (int i = 0; i < team.servers; ++i) {
      ServerClient::Server place = {.rank = Rank{team.workers + i}, .blocks = placement.blocks_of(i)};
      if (place.rank.value == self) {
        place.here = [this](const RequestHead& request, std::span<const std::byte> in, std::span<std::byte> out) {
          return port_->answer_here(request, in, out);
        };
      }
      places.push_back(std::move(place));
    }
    client_ = std::make_unique<ServerClient>(
        *team.fabric, map_, places,
        ServerClient::Options{.view = team.view, .incarnation = team.incarnation, .wake = [this] { link_.wake(); }});
  }
  if (server_ != nullptr && team.newly_lost) {  // not where evaluations are: others wait for the dead's samples
    fencing_ = std::jthread([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        fence_the_lost();
        std::this_thread::sleep_for(kBetweenFences);
      }
    });
  }
  link_.start(*team.fabric, [this] {
    const bool served = port_ != nullptr && port_->advance();
    return (client_ != nullptr && client_->advance()) || served;
  });
}

ServedLinks::~ServedLinks() {
  fencing_ = {};
  link_.stop();
}

void ServedLinks::fence_the_lost() {
  for (const std::uint64_t incarnation : team_.newly_lost()) {
    server_->fence(incarnation);
    team_.fenced(incarnation, server_->open_leases());
  }
}

}  // namespace distbelief
