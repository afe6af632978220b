#include "base/random.h"

#include <gtest/gtest.h>

#include <cmath>

namespace distbelief {
namespace {

TEST(CounterRandom, IsAFunctionOfItsArguments) {
  const CounterRandom a(7, RandomUse::dropout);
  const CounterRandom b(7, RandomUse::dropout);
  EXPECT_EQ(a.words(3, 9), b.words(3, 9));
  EXPECT_NE(a.words(3, 9), b.words(3, 10));
  EXPECT_NE(a.words(3, 9), b.words(4, 9));
  EXPECT_NE(a.words(3, 9), CounterRandom(8, RandomUse::dropout).words(3, 9));
  EXPECT_NE(a.words(3, 9), CounterRandom(7, RandomUse::shuffle).words(3, 9));
}

TEST(CounterRandom, MatchesThePublishedPhiloxVectorForZeroKeyAndCounter) {
  const CounterRandom zero(0, static_cast<RandomUse>(0));
  const std::array<std::uint32_t, 4> expected = {0x6627e8d5U, 0xe169c58dU, 0xbc57ac4cU, 0x9b00dbd8U};
  EXPECT_EQ(zero.words(0, 0), expected);
}

TEST(CounterRandom, NormalHasMeanZeroAndVarianceOne) {
  const CounterRandom random(1, RandomUse::initialize);
  double sum = 0;
  double squares = 0;
  constexpr int kCount = 100000;
  for (int i = 0; i < kCount; ++i) {
    const double x = random.normal(5, i);
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / kCount, 0.0, 0.02);
  EXPECT_NEAR(squares / kCount, 1.0, 0.02);
}

TEST(CounterRandom, BelowStaysBelowAndReachesAll) {
  const CounterRandom random(1, RandomUse::shuffle);
  std::array<int, 10> seen{};
  for (int i = 0; i < 1000; ++i) {
    seen.at(random.below(10, 0, i))++;
  }
  for (const int count : seen) {
    EXPECT_GT(count, 50);
  }
}

}  // namespace
}  // namespace distbelief
