#include "train/core_share.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <string>
#include <thread>

namespace distbelief {
namespace {

/// Restores what the process may use.
class CoreShare : public testing::Test {
 protected:
  CoreShare() { sched_getaffinity(0, sizeof before_, &before_); }
  ~CoreShare() override { sched_setaffinity(0, sizeof before_, &before_); }
  cpu_set_t before_ = {};
};

TEST_F(CoreShare, CountsWhatTheProcessMayUse) {
  EXPECT_EQ(usable_cores(), CPU_COUNT(&before_));
  const std::uint64_t digest = usable_cores_digest();
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &before_)) {
      CPU_SET(cpu, &one);
    }
  }
  sched_setaffinity(0, sizeof one, &one);
  EXPECT_EQ(usable_cores(), 1);
  EXPECT_EQ(usable_cores_digest() == digest, CPU_COUNT(&before_) == 1);
}

cpu_set_t own_cores() {
  cpu_set_t own;
  sched_getaffinity(0, sizeof own, &own);
  return own;
}

TEST_F(CoreShare, PartsAreDisjointAndCoverAll) {
  cpu_set_t all;
  CPU_ZERO(&all);
  int sum = 0;
  const int workers = std::min(2, usable_cores());
  const CorePlan plan = plan_cores({.workers = workers, .threads = 1});
  ASSERT_EQ(std::ssize(plan.workers), workers);
  EXPECT_EQ(plan.spare, "");
  for (const std::string& cores : plan.workers) {
    sched_setaffinity(0, sizeof before_, &before_);
    ASSERT_TRUE(bind_process(cores));
    const cpu_set_t own = own_cores();
    sum += CPU_COUNT(&own);
    CPU_OR(&all, &all, &own);
  }
  EXPECT_EQ(sum, CPU_COUNT(&before_));
  EXPECT_TRUE(CPU_EQUAL(&all, &before_));
}

TEST_F(CoreShare, ServersGetWhatWorkersDoNotComputeOn) {
  const CorePlan plan = plan_cores({.workers = 1, .threads = 1, .servers = 1});
  ASSERT_EQ(plan.workers.size(), 1U);
  ASSERT_TRUE(bind_process(plan.workers[0]));
  const cpu_set_t worker = own_cores();
  sched_setaffinity(0, sizeof before_, &before_);
  if (usable_cores() == CPU_COUNT(&worker)) {
    EXPECT_EQ(plan.spare, "");  // there is one core
    return;
  }
  ASSERT_TRUE(bind_process(plan.spare));
  const cpu_set_t spare = own_cores();
  EXPECT_EQ(CPU_COUNT(&worker) + CPU_COUNT(&spare), CPU_COUNT(&before_));
  cpu_set_t both;
  CPU_AND(&both, &worker, &spare);
  EXPECT_EQ(CPU_COUNT(&both), 0);
}

TEST_F(CoreShare, WorkersThatTakeAllTheyCanLeaveNothing) {
  EXPECT_EQ(plan_cores({.workers = 1, .threads = 0, .servers = 1}).spare, "");
}

TEST_F(CoreShare, ThreadsThatStartLaterAreBoundToo) {
  ASSERT_TRUE(bind_process(plan_cores({.workers = 1, .threads = 1, .servers = 1}).workers.at(0)));
  cpu_set_t own;
  CPU_ZERO(&own);
  std::jthread([&] { own = own_cores(); }).join();
  EXPECT_EQ(CPU_COUNT(&own), usable_cores());
}

TEST_F(CoreShare, AThreadIsBoundAlone) {
  const std::string cores = plan_cores({.workers = 1, .threads = 1, .servers = 1}).workers.at(0);
  std::jthread([&] { EXPECT_TRUE(bind_thread(cores)); }).join();
  EXPECT_EQ(usable_cores(), CPU_COUNT(&before_));
}

TEST_F(CoreShare, NobodyIsBoundWhereCoresAreTooFew) {
  EXPECT_TRUE(plan_cores({.workers = usable_cores() + 1, .threads = 1}).workers.empty());
  EXPECT_TRUE(plan_cores({.workers = 1, .threads = usable_cores() + 1}).workers.empty());
}

}  // namespace
}  // namespace distbelief
