#include "train/link_watch.h"

#include <gtest/gtest.h>

#include <mutex>

#include "comm/run_ranks.h"

namespace distbelief {
namespace {

constexpr std::uint64_t kTenMilliseconds = 10'000'000;

std::vector<StepCosts> step_of(std::uint64_t others_wait, std::uint64_t least_wait) {
  const auto costs = [](std::uint64_t wait) {
    return StepCosts{.rows = 1, .computed = kTenMilliseconds, .took = kTenMilliseconds + wait};
  };
  return {costs(others_wait), costs(least_wait), costs(others_wait)};
}

int looks_of(LinkWatch& watch, const std::vector<StepCosts>& costs) {
  int looks = 0;
  for (int i = 0; i < 1000 && looks == 0; ++i) {
    looks += watch.heard(costs) ? 1 : 0;
  }
  return looks;
}

TEST(LinkWatch, MeasuresOnlyWhenAlsoWhoWaitsLeastDoesSoForLong) {
  LinkWatch slow_member;
  EXPECT_EQ(looks_of(slow_member, step_of(10 * kTenMilliseconds, 0)), 0);  // all wait for one that computes
  LinkWatch slow_links;
  EXPECT_EQ(looks_of(slow_links, step_of(kTenMilliseconds, kTenMilliseconds)), 1);
  LinkWatch two;
  const std::vector<StepCosts> costs = step_of(kTenMilliseconds, kTenMilliseconds);
  EXPECT_EQ(looks_of(two, {costs[0], costs[1]}), 0);
}

TEST(LinkWatch, FindsWhoseLinksAreSlow) {
  EXPECT_EQ(position_of_slow_links(std::vector<double>{0.0001, 0.0002, 0.02, 0.0001}), 2);
  EXPECT_EQ(position_of_slow_links(std::vector<double>{0.0001, 0.0002, 0.0004, 0.0001}), -1);
  EXPECT_EQ(position_of_slow_links(std::vector<double>{0.02, 0.02, 0.02}), -1);
  EXPECT_EQ(position_of_slow_links(std::vector<double>{0.02, 0.0001}), -1);
}

TEST(LinkWatch, AllMembersMeasureAllOthersOrThoseNearby) {
  for (const int ranks : {1, 2, 3, 5, 12}) {
    std::mutex mutex;
    run_ranks(ranks, [&](Fabric& fabric) {
      Group group(fabric, all_ranks(fabric), 1);
      std::vector<double> trips;
      ASSERT_TRUE(measure_links(group, Clock::now() + std::chrono::minutes(1), trips).ok());
      const std::scoped_lock lock(mutex);
      EXPECT_EQ(trips.size(), ranks <= 10 ? static_cast<std::size_t>(ranks - 1) : 8U);
      for (const double seconds : trips) {
        EXPECT_GT(seconds, 0);
      }
    });
  }
}

}  // namespace
}  // namespace distbelief
