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

TEST_F(CoreShare, PartsAreDisjointAndCoverAll) {
  cpu_set_t all;
  CPU_ZERO(&all);
  int sum = 0;
  const int sharers = std::min(2, usable_cores());
  for (int index = 0; index < sharers; ++index) {
    sched_setaffinity(0, sizeof before_, &before_);
    ASSERT_NE(bind_to_share(index, sharers, 1), "");
    cpu_set_t own;
    sched_getaffinity(0, sizeof own, &own);
    sum += CPU_COUNT(&own);
    CPU_OR(&all, &all, &own);
  }
  EXPECT_EQ(sum, CPU_COUNT(&before_));
  EXPECT_TRUE(CPU_EQUAL(&all, &before_));
}

TEST_F(CoreShare, ThreadsThatStartLaterAreBoundToo) {
  ASSERT_NE(bind_to_share(0, usable_cores(), 1), "");
  cpu_set_t own;
  CPU_ZERO(&own);
  std::jthread([&] { sched_getaffinity(0, sizeof own, &own); }).join();
  EXPECT_EQ(CPU_COUNT(&own), usable_cores());
}

TEST_F(CoreShare, NobodyIsBoundWhereCoresAreTooFew) {
  EXPECT_EQ(bind_to_share(0, CPU_COUNT(&before_) + 1, 1), "");
  EXPECT_EQ(bind_to_share(0, 1, CPU_COUNT(&before_) + 1), "");
  EXPECT_EQ(usable_cores(), CPU_COUNT(&before_));
}

}  // namespace
}  // namespace distbelief
