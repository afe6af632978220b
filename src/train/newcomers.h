#pragma once

#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cluster/membership.h"
#include "train/control_events.h"
#include "train/served_team.h"
#include "transport/locked/locked_fabric.h"
#include "transport/socket/socket_fabric.h"

namespace distbelief {

/// Who has to talk to whom in a job with parameter servers: two workers only where servers are inside them, or where
/// they hold a copy of a network together, which is of `parts` in a row.
struct ServedLinkRule {
  bool inside = false;
  int parts = 1;
  bool links(const MemberInfo& one, const MemberInfo& other) const {
    return inside || one.role == Role::server || other.role == Role::server || is_one_copy(one, other);
  }
  bool is_one_copy(const MemberInfo& one, const MemberInfo& other) const {
    return parts > 1 && one.role == Role::worker && other.role == Role::worker &&
           one.rank.value / parts == other.rank.value / parts;
  }
  /// Whether all are there with whom this member begins: a worker of a copy waits for the others of it, and who is to
  /// talk to it need not wait as well.
  bool is_ready(const View& view, const MemberInfo& member) const;
};

/// Of a process of such a job: meets whoever comes while the job runs, on a thread of its own, so that nobody waits for
/// them.
class Newcomers {
 public:
  /// All are borrowed. Those of `view`, and of views before, are no newcomers. `locked`: what stands around the fabric
  /// where other threads use it too, or null.
  Newcomers(GrowingFabric& fabric, LockedFabric* locked, ControlEvents& events, const View& view,
            const MemberInfo& self, const ServedLinkRule& rule);
  ~Newcomers();
  Newcomers(const Newcomers&) = delete;
  Newcomers& operator=(const Newcomers&) = delete;

  /// Who has been met since the last call. Thread-safe.
  std::vector<ServedTeam::Newcomer> take();

 private:
  void meet(const std::stop_token& stop);
  /// Who came since the last call, and can be met now.
  std::vector<MemberInfo> look_for_them();

  GrowingFabric& fabric_;
  LockedFabric* const locked_;
  ControlEvents& events_;
  const MemberInfo self_;
  const ServedLinkRule rule_;
  std::uint64_t view_;
  std::set<int> known_;                     ///< these two: of the thread; ranks
  std::map<int, MemberInfo> unready_ = {};  ///< who came, and is not ready yet, by rank
  std::mutex mutex_;
  std::vector<ServedTeam::Newcomer> met_;  // guarded by mutex_
  std::jthread thread_;                    // last: it stops before the rest goes
};

/// Of a process that comes to such a job: gets its links to those that are in `view`, as far as they live. False: not
/// in time.
bool meet_those_that_are_there(GrowingFabric& fabric, ControlEvents& events, const View& view, const MemberInfo& self,
                               const ServedLinkRule& rule, Clock::time_point deadline);

}  // namespace distbelief
