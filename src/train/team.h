#pragma once

#include <functional>
#include <string>

#include "comm/group.h"
#include "graph/loss.h"
#include "train/served_team.h"
#include "train/worker_activity.h"
#include "train/worker_chaos.h"

namespace distbelief {

/// The processes that train one model together, as one of them sees them. The first of them leads: it writes the run's
/// folder.
struct Team {
  Group* group = nullptr;                               ///< all members, in order; borrowed. Null: alone
  Group* column = nullptr;  ///< where a network is cut: those that have the same part of each copy; borrowed
  Clock::duration patience = std::chrono::minutes(10);  ///< for members that live but do not answer
  int sharers = 1;                                      ///< members that share the cores this process may use

  /// Who was lost, for people: given what the data plane saw, what the control plane knows. May wait for it a moment.
  std::function<std::string(const std::string& seen)> explain = {};
  /// After a loss: the leader is dead and this member is the first of those that live.
  std::function<bool()> takes_over = {};

  WorkerActivity* activity = nullptr;  ///< borrowed: where this member tells what it does; null: nobody asks
  WorkerChaos* chaos = nullptr;        ///< borrowed: what --chaos does to this member; null: as it makes it itself
  int restarts = 0;                    ///< how often the launcher has started this job again

  const ServedTeam* served = nullptr;  ///< borrowed: the parameters are with servers, and there is no group
  bool took_over = false;              ///< likewise: the server that led is lost, and this one leads now

  int position() const { return group == nullptr ? 0 : group->position(); }
  int size() const { return group == nullptr ? 1 : group->size(); }
  /// Those that train the same parameters on other samples.
  Group* across() const { return column == nullptr ? group : column; }
  int replica() const { return across() == nullptr ? 0 : across()->position(); }
  int replicas() const { return across() == nullptr ? 1 : across()->size(); }
  int workers() const { return served != nullptr ? served->workers : size(); }
  bool leads() const { return took_over || (served != nullptr ? served->leads() : position() == 0); }

  /// Adds up the sums of all replicas, in their order.
  Outcome sum(LossSums& sums) const;
  /// Adds up everybody's.
  Outcome sum(double& number) const;
  /// Everybody gets the leader's text.
  Outcome share(std::string& text) const;
};

}  // namespace distbelief
