#include "train/batch_shares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "base/random.h"

namespace distbelief {
namespace {

using testing::ElementsAre;
using Rows = std::vector<std::int64_t>;
using Speeds = std::vector<std::uint64_t>;

constexpr std::uint64_t kMillisecond = 1'000'000;

std::int64_t sum_of(const Rows& shares) { return std::accumulate(shares.begin(), shares.end(), std::int64_t{0}); }

TEST(ShareOut, IsInProportionToSpeeds) {
  EXPECT_THAT(proportional_shares(128, Speeds{100, 100, 50}), ElementsAre(52, 52, 24));
  EXPECT_THAT(proportional_shares(100, Speeds{3, 1}), ElementsAre(75, 25));
  EXPECT_THAT(proportional_shares(128, Speeds{7, 7, 7, 7}), ElementsAre(32, 32, 32, 32));
}

TEST(ShareOut, OnlyProportionsCount) {
  EXPECT_EQ(proportional_shares(128, Speeds{3, 2, 1}),
            proportional_shares(128, Speeds{3'000'000'000'000, 2'000'000'000'000, 1'000'000'000'000}));
}

TEST(ShareOut, AddsUpIsMonotoneAndLeavesNobodyWithoutSamples) {
  const CounterRandom random(7, RandomUse::generate);
  for (std::uint64_t trial = 0; trial < 500; ++trial) {
    const std::size_t members = 1 + random.word64(trial, 0) % 12;
    const auto batch = static_cast<std::int64_t>(members + random.word64(trial, 1) % 3000);
    Speeds speeds;
    for (std::size_t i = 0; i < members; ++i) {
      speeds.push_back(random.word64(trial, 2 + i) % 100'000);
    }
    const Rows shares = proportional_shares(batch, speeds);
    ASSERT_EQ(sum_of(shares), batch);
    const std::int64_t unit = share_unit(batch, members);
    for (std::size_t i = 0; i < members; ++i) {
      ASSERT_GE(shares[i], 1);
      for (std::size_t j = 0; j < members; ++j) {
        if (speeds[i] > speeds[j]) {
          ASSERT_GE(shares[i] + unit, shares[j]);  // one may have what is left over
        }
      }
    }
    ASSERT_EQ(shares, proportional_shares(batch, speeds));
  }
}

TEST(ShareOut, HasFewDifferentShares) {
  for (const std::int64_t batch : {128, 1000, 4096}) {
    const std::int64_t unit = share_unit(batch, 2);
    for (std::uint64_t speed = 1; speed <= 1000; ++speed) {
      const Rows shares = proportional_shares(batch, Speeds{1000, speed});
      EXPECT_TRUE(shares[0] % unit == 0 || shares[1] % unit == 0);
      EXPECT_GE(batch / unit, 64);
    }
    EXPECT_LE(batch / unit, 128);
  }
}

TEST(ShareOut, NobodyTakesMoreThanFourEqualSharesWhereOthersCan) {
  const Rows shares = proportional_shares(160, Speeds{1000, 1, 1, 1, 1, 1, 1, 1});
  EXPECT_EQ(shares[0], 80);
  EXPECT_EQ(sum_of(shares), 160);
}

TEST(ShareOut, ChangesByAtMostTheDoubleOrTheHalf) {
  EXPECT_THAT(proportional_shares(128, Speeds{100, 1}, Rows{64, 64}), ElementsAre(96, 32));
  EXPECT_THAT(proportional_shares(128, Speeds{100, 1}, Rows{96, 32}), ElementsAre(112, 16));
}

TEST(ShareOut, OfABatchThatIsTooSmallIsEqual) {
  EXPECT_THAT(proportional_shares(2, Speeds{5, 1, 1}), ElementsAre(0, 1, 1));
  EXPECT_THAT(proportional_shares(3, Speeds{5, 1, 1}), ElementsAre(1, 1, 1));
}

/// Members that take so many nanoseconds a sample.
struct TestWorkers {
  std::vector<std::uint64_t> each;
  BatchBalance balance;
  std::uint64_t hosts = 1;  ///< different ones
  int changes = 0;

  void step(int times = 1) {
    for (int i = 0; i < times; ++i) {
      std::vector<StepCosts> costs;
      for (std::size_t member = 0; member < each.size(); ++member) {
        const auto rows = static_cast<std::uint64_t>(balance.shares()[member]);
        costs.push_back({.rows = rows, .computed = rows * each[member], .host = 1 + member % hosts});
      }
      changes += balance.heard(costs) ? 1 : 0;
    }
  }
};

TEST(BatchBalance, FollowsTheSpeedsOfWorkers) {
  TestWorkers group = {.each = {kMillisecond, kMillisecond, 2 * kMillisecond}, .balance = {{43, 43, 42}, true}};
  group.step(200);
  EXPECT_THAT(group.balance.shares(), ElementsAre(52, 52, 24));
  EXPECT_EQ(group.changes, 1);
  group.each[2] = kMillisecond;  // it has recovered
  group.step(5000);
  EXPECT_THAT(group.balance.shares(), ElementsAre(44, 42, 42));
}

TEST(BatchBalance, ComesToVeryUnequalWorkersInSeveralSteps) {
  TestWorkers group = {.each = {kMillisecond, 10 * kMillisecond}, .balance = {{64, 64}, true}};
  group.step(300);
  EXPECT_THAT(group.balance.shares(), ElementsAre(118, 10));
  EXPECT_LE(group.changes, 4);
}

TEST(BatchBalance, CountsTimeThatAWorkerWaitsForItsData) {
  TestWorkers group = {.each = {kMillisecond, kMillisecond}, .balance = {{64, 64}, true}};
  for (int i = 0; i < 40; ++i) {
    const auto rows = [&](std::size_t of) { return static_cast<std::uint64_t>(group.balance.shares()[of]); };
    const std::vector<StepCosts> costs = {
        {.rows = rows(0), .computed = rows(0) * kMillisecond},
        {.rows = rows(1), .computed = rows(1) * kMillisecond, .loaded = rows(1) * 2 * kMillisecond}};
    (void)group.balance.heard(costs);
  }
  EXPECT_THAT(group.balance.shares(), ElementsAre(96, 32));
}

TEST(BatchBalance, LeavesSharesAloneForWhatMightBeNoise) {
  TestWorkers group = {.each = {kMillisecond, 1'040'000, 980'000}, .balance = {{43, 43, 42}, true}};
  group.step(10'000);
  EXPECT_EQ(group.changes, 0);
}

TEST(BatchBalance, OutliersDoNotCount) {
  TestWorkers group = {.each = {kMillisecond, kMillisecond}, .balance = {{64, 64}, true}};
  for (int i = 0; i < 100; ++i) {
    group.each[1] = i % 5 == 0 ? 50 * kMillisecond : kMillisecond;
    group.step();
  }
  EXPECT_EQ(group.changes, 0);
}

TEST(BatchBalance, OnOneHostOnlyWhereItIsAskedTo) {
  TestWorkers one = {.each = {kMillisecond, 3 * kMillisecond}, .balance = {{64, 64}, false}};
  one.step(500);
  EXPECT_EQ(one.changes, 0);
  TestWorkers two = {.each = {kMillisecond, 3 * kMillisecond}, .balance = {{64, 64}, false}, .hosts = 2};
  two.step(500);
  EXPECT_EQ(two.changes, 1);
}

TEST(BatchBalance, BatchesThatAreNotWholeSayNothing) {
  BatchBalance balance({64, 64}, true);
  const std::vector<StepCosts> costs = {{.rows = 10, .computed = kMillisecond},
                                        {.rows = 10, .computed = 1000 * kMillisecond}};
  for (int i = 0; i < 1000; ++i) {
    EXPECT_FALSE(balance.heard(costs));
  }
  EXPECT_FALSE(balance.heard(std::vector<StepCosts>(2)));
  EXPECT_FALSE(balance.heard({}));
}

TEST(SharesText, NamesWhoIsSlowAndHowMuch) {
  EXPECT_EQ(shares_text(std::vector{0, 1, 3}, Rows{52, 50, 26}, Speeds{1000, 1000, 500}),
            "worker 0 52, worker 1 50, worker 3 26: worker 3 takes 2.0 times as long a sample");
  EXPECT_EQ(shares_text(std::vector{0, 1}, Rows{64, 64}, Speeds{1000, 1000}), "worker 0 64, worker 1 64");
}

}  // namespace
}  // namespace distbelief
