#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>

#include "server/link_thread.h"
#include "server/placement.h"
#include "server/server_client.h"
#include "server/server_port.h"
#include "train/served_team.h"

namespace distbelief {

/// What a process of a job with parameter servers has of them: the blocks it owns, if it is a server, and ways to all
/// blocks, for a worker and for who leads. Works on a thread of its own until it is destroyed.
class ServedLinks {
 public:
  /// What the leader, whose books stand behind it, does with what workers say. All thread-safe.
  struct Hooks {
    std::function<void(const RequestHead&, const ReplyHead&, std::string_view)> heard =
        {};  ///< these two: see ServerPort
    std::function<std::optional<Work>(const RequestHead&)> work = {};
    std::function<void(std::uint64_t)> lost = {};  ///< a worker, by incarnation
  };
  /// All but `options` and `hooks` are borrowed. `values`: where parameters begin, for a server.
  ServedLinks(const ServedTeam& team, const ParameterTable& table, const UpdateRule& rule,
              std::span<const float> values, ParameterServer::Options options, Hooks hooks);
  ~ServedLinks();

  ParameterServer& server() { return *server_; }
  /// What updates are made of has changed by other means than requests: they may be due.
  void server_changed();
  /// From now on nobody waits at this process's server.
  void let_all_go() { port_->let_all_go(); }
  ServerClient& worker() { return *client_; }
  ServerClient& leader() { return *leader_; }

 private:
  /// Fences workers that are gone, and says how far they came; where servers are inside, lets nobody wait for them.
  void watch_for_losses();

  const ServedTeam& team_;
  const Hooks hooks_;
  const BlockMap map_;
  LinkThread link_;
  std::unique_ptr<ParameterServer> server_;
  std::unique_ptr<ServerPort> port_;
  std::unique_ptr<ServerClient> client_;
  std::unique_ptr<ServerClient> leader_;
  std::jthread watching_;  ///< a server's; last: it stops before the rest goes
};

}  // namespace distbelief
