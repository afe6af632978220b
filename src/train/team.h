#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "comm/group.h"
#include "config/run_config.h"
#include "graph/loss.h"
#include "train/served_team.h"
#include "train/worker_activity.h"
#include "train/worker_chaos.h"

namespace distbelief {

/// Who goes on together when members were lost or have come.
struct NextTeam {
  std::uint32_t epoch = 0;         ///< of the new group
  std::vector<Rank> members;       ///< in order of position, this process's among them
  std::vector<Rank> leaving = {};  ///< of these, where a network is cut: whom the others shall do without, if they can
  int most_workers = 0;            ///< likewise: so many shall go on; 0: all
};

/// What people should know of a member.
struct MemberNews {
  std::string who;  ///< "worker 1 (pid 4711 on alpha)"
  std::string why;  ///< it is lost: "was killed by signal 9 (SIGKILL)"; empty when it lives
};

/// A part of the network is lost: those who are left begin anew from the newest checkpoint, in the places that a new
/// cut gives them.
struct RollBack {
  NextTeam team = {};                 ///< who trains, as the new grid numbers them
  RunConfig config = {};              ///< that they train with,
  RunConfig original = {};            ///< and with which the job began
  std::uint32_t generation = 0;       ///< how often that was done
  std::int64_t step = 0;              ///< that was reached
  std::vector<MemberNews> lost = {};  ///< since the job began
  std::vector<MemberNews> came = {};  ///< likewise, and had no part until all went back
  std::vector<Rank> spare = {};       ///< who live and have no place
};

/// The processes that train one model together, as one of them sees them. The first of them leads: it writes the run's
/// folder.
struct Team {
  Group* group = nullptr;   ///< all members, in order; borrowed. Null: alone
  Group* column = nullptr;  ///< where a network is cut: those that have the same part of each copy; borrowed
  Clock::duration patience = std::chrono::minutes(10);  ///< for members that live but do not answer
  int sharers = 1;                                      ///< members that share the cores this process may use

  /// Who was lost, for people: given what the data plane saw, what the control plane knows. May wait for it a moment.
  std::function<std::string(const std::string& seen)> explain = {};
  /// After a loss: the leader is dead and this member is the first of those that live.
  std::function<bool()> takes_over = {};
  /// After a loss: waits for the first group after the one of this epoch that can be formed; nothing when there will be
  /// none. Null: a group that lost a member cannot go on.
  std::function<std::optional<NextTeam>(std::uint32_t epoch)> next = {};
  /// The group that next() gave stands.
  std::function<void(std::uint32_t epoch)> formed = {};
  /// The newest group that could be formed with members that came, or the one that stands: any time.
  std::function<std::uint32_t()> newest = {};
  /// This member is to leave, while the others go on: any time. Null: it is never, or, where a network is cut, the next
  /// group says so.
  std::function<bool()> leaving = {};
  /// Gets links to those that came. The epoch of the group that the others form, where they say so; else 0. Nothing
  /// when somebody cannot be reached, so that the group is not to be.
  std::function<std::optional<std::uint32_t>(const NextTeam& next)> admit = {};
  bool late = false;  ///< this member came when the others had begun, and gets all from them
  /// Whether several threads use the group's links from now on. Null: it does not matter.
  std::function<void(bool several)> share_links = {};
  std::function<std::optional<MemberNews>(Rank)> news_of = {};
  /// The others have given this process up and go on without it: the run's folder is theirs.
  std::function<bool()> fenced = {};

  WorkerActivity* activity = nullptr;  ///< borrowed: where this member tells what it does; null: nobody asks
  WorkerChaos* chaos = nullptr;        ///< borrowed: what --chaos does to this member; null: as it makes it itself
  int restarts = 0;                    ///< how often the launcher has started this job again

  const RollBack* went_back = nullptr;  ///< borrowed: why this team begins from a checkpoint
  bool spare = false;                   ///< the others go on without this member, or it has no place yet

  const ServedTeam* served = nullptr;  ///< borrowed: the parameters are with servers, and there is no group
  /// Likewise, since that changed: whether this server leads.
  std::optional<bool> leads_servers = {};

  int position() const { return group == nullptr ? 0 : group->position(); }
  int size() const { return group == nullptr ? 1 : group->size(); }
  /// Those that train the same parameters on other samples.
  Group* across() const { return column == nullptr ? group : column; }
  int replica() const { return across() == nullptr ? 0 : across()->position(); }
  int replicas() const { return across() == nullptr ? 1 : across()->size(); }
  int workers() const { return served != nullptr ? served->workers : size(); }
  bool leads() const { return !spare && leads_servers.value_or(served != nullptr ? served->leads() : position() == 0); }

  /// Adds up the sums of all replicas, in their order.
  Outcome sum(LossSums& sums) const;
  /// Adds up everybody's.
  Outcome sum(double& number) const;
  /// Everybody gets the leader's text.
  Outcome share(std::string& text) const;
};

}  // namespace distbelief
