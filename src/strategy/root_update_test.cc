#include "strategy/root_update.h"

#include <gtest/gtest.h>

#include "strategy/test_member.h"

namespace distbelief {
namespace {

TEST(RootUpdate, WhatTheRootAndTheSecondUpdatedCountsThoughAWorkerDiedBeforeItGotTheParameters) {
  run_ranks(3, [&](Fabric& fabric) {
    TestMember member(fabric, {.algorithm = "sync"});
    ASSERT_EQ(member.strategy->join().outcome, StepReport::Outcome::stepped);
    const std::vector<float> before = member.values();
    if (member.position() == 2) {
      // The first half of a step, and no more.
      const Clock::time_point deadline = Clock::now() + std::chrono::minutes(2);
      std::vector<float> zeros(before.size());
      ASSERT_TRUE(member.group->reduce(zeros, 0, deadline).ok());
      const Batch& batch = *member.samples.next();
      StepExchange::Told told;
      ASSERT_TRUE(StepExchange(*member.group, kBatch).tell({}, 1, batch.ids, {}, deadline, told).ok());
      return;
    }
    const StepReport report = member.step();
    EXPECT_TRUE(report.completed || report.outcome == StepReport::Outcome::stepped);
    EXPECT_TRUE(member.strategy->holds_state());
    EXPECT_NE(member.values(), before);
    EXPECT_EQ(std::ranges::count(member.samples.applied_times, 1), kBatch);
  });
}

}  // namespace
}  // namespace distbelief
