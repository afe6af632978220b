#include "strategy/gossip.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>

#include "strategy/test_member.h"

namespace distbelief {
namespace {

TEST(Gossip, InStepGivesTheSameBitsAgain) {
  std::vector<std::vector<float>> values;
  for (int run = 0; run < 3; ++run) {
    values.emplace_back();
    run_ranks(3, [&](Fabric& fabric) {
      TestMember member(fabric, {.algorithm = "gossip", .batch_norm = true, .quorum = 2});
      (void)member.train(12);
      if (member.position() == 1) {
        values.back() = member.values();
      }
    });
  }
  EXPECT_EQ(values[1], values[0]);
  EXPECT_EQ(values[2], values[0]);
}

TEST(Gossip, OneMemberIsPlainTraining) {
  TestMember alone(TestOptions{});
  const std::vector<double> losses = alone.train(10);
  run_ranks(1, [&](Fabric& fabric) {
    TestMember member(fabric, {.algorithm = "gossip"});
    EXPECT_EQ(member.train(10), losses);
    EXPECT_EQ(member.values(), alone.values());
  });
}

TEST(Gossip, NobodyIsFurtherAheadOfTheSlowestThanTheBound) {
  constexpr int kStaleness = 3;
  constexpr int kRounds = 20;
  std::array<std::atomic<int>, 3> begun = {};
  run_ranks(3, [&](Fabric& fabric) {
    TestMember member(fabric, {.algorithm = "gossip", .quorum = 0, .staleness = kStaleness});
    ASSERT_EQ(member.strategy->join().outcome, StepReport::Outcome::stepped);
    TestSamples single(3, member.position(), 3);  // a sample each: more rounds than are wanted
    std::atomic<int>& own = begun[static_cast<std::size_t>(member.position())];
    while (own < kRounds) {
      if (member.position() == 0 && own < 2 * kStaleness) {
        // The others run as far ahead as they may, and no further.
        while (begun[1] < own + kStaleness || begun[2] < own + kStaleness) {
          std::this_thread::yield();
        }
      }
      const StepReport report = member.strategy->step(single, {.update = {.rate = 0.01F}});
      ASSERT_EQ(report.outcome, StepReport::Outcome::stepped) << report.culprit;
      ++own;
      for (const std::atomic<int>& other : begun) {
        // Who counts its round only when it is over has sent one more than it says.
        EXPECT_LE(own - (other + 1), kStaleness);
      }
    }
    EXPECT_EQ(member.strategy->settle(single).outcome, StepReport::Outcome::stepped);
  });
}

TEST(Gossip, AMemberThatIsSilentEndsTheWaitAtItsDeadline) {
  run_ranks(2, [&](Fabric& fabric) {
    TestMember member(fabric, {.algorithm = "gossip", .quorum = 1, .patience = std::chrono::milliseconds(1)});
    if (member.position() == 0) {
      const StepReport report = member.step();
      EXPECT_EQ(report.outcome, StepReport::Outcome::group_lost);
      EXPECT_EQ(report.culprit, "rank 1 did not answer in time");
      EXPECT_FALSE(member.strategy->holds_state());
    }
    EXPECT_TRUE(member.group->barrier(Clock::now() + std::chrono::minutes(2)).ok());
  });
}

TEST(Gossip, StatisticsOfBatchNormMoveWithEveryMembersObservations) {
  run_ranks(2, [&](Fabric& fabric) {
    TestMember member(fabric, {.algorithm = "gossip", .batch_norm = true, .quorum = 1});
    ASSERT_EQ(member.strategy->join().outcome, StepReport::Outcome::stepped);
    ASSERT_EQ(member.step().outcome, StepReport::Outcome::stepped);
    ASSERT_EQ(member.strategy->settle(member.samples).outcome, StepReport::Outcome::stepped);
    TestMember fresh(TestOptions{.batch_norm = true});  // what the first member began with
    std::vector<std::vector<float>> observed;
    for (int part = 0; part < 2; ++part) {
      TestSamples samples(2 * kBatch, part, 2);
      (void)fresh.replica.compute_gradient(*samples.next());
      const std::span<const float> seen = fresh.replica.gradients()[0];
      observed.emplace_back(seen.begin(), seen.end());
    }
    const float rate = fresh.table.entries().back().spec.average_rate;
    const auto first = static_cast<std::size_t>(fresh.table.optimized_size());
    for (std::size_t i = first; i < static_cast<std::size_t>(fresh.table.size()); ++i) {
      const auto moved = [&](std::size_t one, std::size_t other) {
        const float once = fresh.values()[i] + rate * (observed[one][i] - fresh.values()[i]);
        return once + rate * (observed[other][i] - once);
      };
      // Each member took its own first, and then they met in the middle.
      EXPECT_NEAR(member.values()[i], (moved(0, 1) + moved(1, 0)) / 2, 1e-5);
    }
  });
}

}  // namespace
}  // namespace distbelief
