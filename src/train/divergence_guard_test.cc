#include "train/divergence_guard.h"

#include <gtest/gtest.h>

#include <limits>

namespace distbelief {
namespace {

LossSums window(double mean) { return {.loss = 100 * mean, .correct = 0, .rows = 100}; }

TEST(DivergenceGuard, IsSilentWhileTheLossFalls) {
  DivergenceGuard guard(100);
  for (double loss = 3; loss > 0.01; loss *= 0.9) {
    EXPECT_FALSE(guard.watch(window(loss)));
  }
}

TEST(DivergenceGuard, BearsALossThatIsWorseThanTheBestButNotThanTheFirst) {
  DivergenceGuard guard(100);
  EXPECT_FALSE(guard.watch(window(2)));
  EXPECT_FALSE(guard.watch(window(0.1)));
  EXPECT_FALSE(guard.watch(window(0.9)));
}

TEST(DivergenceGuard, SeesALossThatIsWorseThanAtFirst) {
  DivergenceGuard guard(100);
  EXPECT_FALSE(guard.watch(window(2)));
  EXPECT_FALSE(guard.watch(window(1)));
  const auto alarm = guard.watch(window(2.3));
  ASSERT_TRUE(alarm);
  EXPECT_DOUBLE_EQ(alarm->best, 1);
  EXPECT_DOUBLE_EQ(alarm->now, 2.3);
}

TEST(DivergenceGuard, SeesALossThatIsNoNumber) {
  DivergenceGuard guard(100);
  EXPECT_FALSE(guard.watch(window(2)));
  EXPECT_TRUE(guard.watch(window(std::numeric_limits<double>::quiet_NaN())));
}

TEST(DivergenceGuard, WaitsAWindowForALowerRateToShow) {
  DivergenceGuard guard(100);
  EXPECT_FALSE(guard.watch(window(1)));
  EXPECT_TRUE(guard.watch(window(9)));
  EXPECT_FALSE(guard.watch(window(9)));
  EXPECT_TRUE(guard.watch(window(9)));
}

TEST(DivergenceGuard, LooksAtWholeWindows) {
  DivergenceGuard guard(100);
  EXPECT_FALSE(guard.watch(window(1)));
  EXPECT_FALSE(guard.watch({.loss = 900, .correct = 0, .rows = 99}));
  EXPECT_TRUE(guard.watch({.loss = 9, .correct = 0, .rows = 1}));
}

}  // namespace
}  // namespace distbelief
