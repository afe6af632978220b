#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "server/link_thread.h"
#include "server/placement.h"
#include "server/server_client.h"
#include "server/server_port.h"
#include "train/served_team.h"

namespace distbelief {

/// What a process of a job with parameter servers has of them: the blocks it owns, if it is a server, and ways to all
/// blocks that concern it, for a worker and for who leads. Where a network is cut, the parameters of each part are a
/// space of their own, with blocks on all servers. Works on a thread of its own until it is destroyed.
class ServedLinks {
 public:
  /// What the leader, whose books stand behind it, does with what workers say. All thread-safe. Where a network is cut
  /// they hear from the first part of each copy.
  struct Hooks {
    std::function<void(const RequestHead&, const ReplyHead&, std::string_view)> heard =
        {};  ///< these two: see ServerPort
    std::function<std::optional<Work>(const RequestHead&)> work = {};
    std::function<void(std::uint64_t)> lost = {};  ///< a worker, by incarnation
  };
  /// The parameters of a part of the network.
  struct Space {
    const ParameterTable* table = nullptr;  ///< null: of no concern here
    std::span<const float> values = {};     ///< where they begin, for a server
  };
  /// All but `spaces`, `options` and `hooks` are borrowed; tables too, values only now. A space for each part.
  ServedLinks(const ServedTeam& team, const std::vector<Space>& spaces, const UpdateRule& rule,
              const ParameterServer::Options& options, Hooks hooks);
  ~ServedLinks();

  /// Of the first part.
  ParameterServer& server() { return *shelves_.front()->server; }
  /// Training is over on this process's server.
  void end_server();
  /// What updates are made of has changed by other means than requests: they may be due.
  void server_changed();
  /// From now on nobody waits at this process's server.
  void let_all_go();
  ServerClient& worker() { return *client_; }
  ServerClient& leader(std::size_t part = 0) { return *shelves_.at(part)->leader; }
  /// How a part's parameters are cut, and which of the blocks each server has at the beginning.
  int servers() const { return team_.servers; }
  const BlockMap& map(std::size_t part) const { return shelves_.at(part)->map; }
  std::vector<int> blocks_of(std::size_t part, int server) const {
    return shelves_.at(part)->placement.blocks_of(server);
  }

 private:
  /// A space, as far as it concerns this process.
  struct Shelf {
    Shelf(const Space& space, const ServedTeam& team);
    const BlockMap map;
    const Placement placement;
    std::unique_ptr<ParameterServer> server;
    std::unique_ptr<ServerPort> port;
    std::unique_ptr<ServerClient> leader;
  };

  void serve(std::size_t part, const Space& space, const UpdateRule& rule, const ParameterServer::Options& options);
  std::unique_ptr<ServerClient> client_of(std::size_t part, ClientRole role);
  /// Fences workers that are gone, and says how far they came; where servers are inside, lets nobody wait for them.
  void watch_for_losses();
  /// How far pushes of each lease have come, in all blocks of this process.
  std::vector<PushId> open_leases() const;

  const ServedTeam& team_;
  const Hooks hooks_;
  LinkThread link_;
  std::vector<std::unique_ptr<Shelf>> shelves_;  ///< of each part; null: of no concern here
  std::unique_ptr<ServerClient> client_;
  std::jthread watching_;  ///< a server's; last: it stops before the rest goes
};

}  // namespace distbelief
