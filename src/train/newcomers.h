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

/// Of a process of a job with parameter servers: meets whoever comes while the job runs, on a thread of its own, so
/// that nobody waits for them. Two workers have nothing to say to each other, and do not meet, unless servers are
/// `inside` them.
class Newcomers {
 public:
  /// All are borrowed. Those of `view`, and of views before, are no newcomers. `locked`: what stands around the fabric
  /// where other threads use it too, or null.
  Newcomers(GrowingFabric& fabric, LockedFabric* locked, ControlEvents& events, const View& view, Role self,
            bool inside);
  ~Newcomers();
  Newcomers(const Newcomers&) = delete;
  Newcomers& operator=(const Newcomers&) = delete;

  /// Who has been met since the last call. Thread-safe.
  std::vector<ServedTeam::Newcomer> take();

 private:
  void meet(const std::stop_token& stop);

  GrowingFabric& fabric_;
  LockedFabric* const locked_;
  ControlEvents& events_;
  const Role self_;
  const bool inside_;
  std::uint64_t view_;
  std::set<int> known_;  ///< ranks; of the thread
  std::mutex mutex_;
  std::vector<ServedTeam::Newcomer> met_;  // guarded by mutex_
  std::jthread thread_;                    // last: it stops before the rest goes
};

/// Of a process that comes to such a job: gets its links to those that are in `view`, as far as they live. False: not
/// in time.
bool meet_those_that_are_there(GrowingFabric& fabric, ControlEvents& events, const View& view, Role self, bool inside,
                               Clock::time_point deadline);

}  // namespace distbelief
