#pragma once

#include <condition_variable>
#include <mutex>

#include "cluster/lease_table.h"
#include "cluster/member.h"

namespace distbelief {

/// Who gives a worker its samples, of jobs with parameter servers. Thread-safe.
class LeaseSource {
 public:
  virtual ~LeaseSource() = default;
  /// At most so many samples; NoLease when there is none by the deadline.
  virtual Member::LeaseAnswer request(std::int64_t samples, Clock::time_point deadline) = 0;
  virtual void complete(std::uint64_t lease) = 0;
  /// See Member::give_back_lease().
  virtual void give_back(std::uint64_t lease, std::uint64_t next_push) = 0;
};

/// From the job's coordinator.
class CoordinatorLeases : public LeaseSource {
 public:
  explicit CoordinatorLeases(Member& member) : member_(member) {}
  Member::LeaseAnswer request(std::int64_t samples, Clock::time_point deadline) override {
    return member_.request_lease(samples, deadline);
  }
  void complete(std::uint64_t lease) override { member_.complete_lease(lease); }
  void give_back(std::uint64_t lease, std::uint64_t next_push) override { member_.give_back_lease(lease, next_push); }

 private:
  Member& member_;
};

/// For workers that are threads of one process: the table itself, once there is a plan.
class SharedLeases {
 public:
  void plan(const LeaseTable::Options& options);
  Member::LeaseAnswer request(std::uint64_t owner, std::int64_t samples, Clock::time_point deadline);
  void complete(std::uint64_t owner, std::uint64_t lease);
  void give_back(std::uint64_t owner, std::uint64_t lease, std::uint64_t next_push);
  /// What this worker has not completed goes to others, from its beginning: what is in the blocks enters no second
  /// time.
  void leave(std::uint64_t owner);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<LeaseTable> table_;  // guarded by mutex_
};

/// One of those workers.
class ThreadLeases : public LeaseSource {
 public:
  ThreadLeases(SharedLeases& leases, std::uint64_t owner) : leases_(leases), owner_(owner) {}
  Member::LeaseAnswer request(std::int64_t samples, Clock::time_point deadline) override {
    return leases_.request(owner_, samples, deadline);
  }
  void complete(std::uint64_t lease) override { leases_.complete(owner_, lease); }
  void give_back(std::uint64_t lease, std::uint64_t next_push) override { leases_.give_back(owner_, lease, next_push); }

 private:
  SharedLeases& leases_;
  const std::uint64_t owner_;
};

}  // namespace distbelief
