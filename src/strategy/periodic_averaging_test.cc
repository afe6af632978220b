#include "strategy/periodic_averaging.h"

#include <gtest/gtest.h>

#include "strategy/test_member.h"

namespace distbelief {
namespace {

TEST(PeriodicAveraging, WhatIsOnlyShownDoesNotChangeWhatMembersTrain) {
  const TestOptions at_the_end = {.algorithm = "averaging", .only_for_show = true};
  std::vector<float> looked_at, left_alone;
  for (std::vector<float>* values : {&looked_at, &left_alone}) {
    run_ranks(3, [&](Fabric& fabric) {
      TestMember member(fabric, at_the_end);
      ASSERT_EQ(member.strategy->join().outcome, StepReport::Outcome::stepped);
      for (int steps = 0; steps < 6;) {
        const StepReport report = member.step();
        steps += report.outcome == StepReport::Outcome::stepped ? 1 : 0;
        if (values == &looked_at && steps % 2 == 0) {
          EXPECT_EQ(member.strategy->settle(member.samples).outcome, StepReport::Outcome::stepped);
          EXPECT_TRUE(member.strategy->holds_state());
        }
      }
      EXPECT_EQ(member.strategy->settle(member.samples).outcome, StepReport::Outcome::stepped);
      if (member.position() == 0) {
        *values = member.values();
      }
    });
  }
  EXPECT_EQ(looked_at, left_alone);
}

TEST(PeriodicAveraging, OneMemberIsPlainTraining) {
  TestMember alone(TestOptions{});
  const std::vector<double> losses = alone.train(10);
  run_ranks(1, [&](Fabric& fabric) {
    for (const bool only_for_show : {false, true}) {
      TestMember member(fabric, {.algorithm = "averaging", .only_for_show = only_for_show});
      EXPECT_EQ(member.train(10), losses);
      EXPECT_EQ(member.values(), alone.values());
    }
  });
}

TEST(PeriodicAveraging, HoldsNoStateBetweenAverages) {
  run_ranks(2, [&](Fabric& fabric) {
    TestMember member(fabric, {.algorithm = "averaging", .average_every = 2});
    ASSERT_EQ(member.strategy->join().outcome, StepReport::Outcome::stepped);
    EXPECT_TRUE(member.strategy->holds_state());
    ASSERT_EQ(member.step().outcome, StepReport::Outcome::stepped);
    EXPECT_FALSE(member.strategy->holds_state());
    ASSERT_EQ(member.step().outcome, StepReport::Outcome::stepped);
    EXPECT_TRUE(member.strategy->holds_state());
  });
}

}  // namespace
}  // namespace distbelief
