#include "params/fill_random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/parallel.h"

namespace distbelief {
namespace {

constexpr std::size_t kRandomNumbers = 400003;

/// The part of the numbers below a bound, against its probability, within five standard deviations.
void expect_part_below(const std::vector<float>& numbers, float bound, double probability) {
  const auto below = std::ranges::count_if(numbers, [&](float number) { return number < bound; });
  const double count = static_cast<double>(numbers.size());
  EXPECT_NEAR(static_cast<double>(below) / count, probability, 5 * std::sqrt(probability * (1 - probability) / count))
      << bound;
}

double correlation(const std::vector<float>& numbers, std::size_t distance) {
  const double product = std::inner_product(numbers.begin(), numbers.end() - static_cast<std::ptrdiff_t>(distance),
                                            numbers.begin() + static_cast<std::ptrdiff_t>(distance), 0.0);
  return product / std::inner_product(numbers.begin(), numbers.end(), numbers.begin(), 0.0);
}

TEST(FillRandom, NormalNumbersFollowTheNormalDistribution) {
  std::vector<float> numbers(kRandomNumbers);
  fill_normal(CounterRandom(3, RandomUse::initialize), 17, 2, numbers);
  for (const double bound : {-3.5, -2.0, -1.0, -0.3, 0.0, 0.01, 0.5, 1.5, 3.0}) {
    expect_part_below(numbers, static_cast<float>(2 * bound), 0.5 * std::erfc(-bound / std::sqrt(2.0)));
  }
  EXPECT_TRUE(std::ranges::all_of(numbers, [](float number) { return std::abs(number) < 2 * 5.8F; }));
}

TEST(FillRandom, UniformNumbersFillTheirInterval) {
  std::vector<float> numbers(kRandomNumbers);
  fill_uniform(CounterRandom(3, RandomUse::initialize), 17, 2, numbers);
  for (const double bound : {-1.9, -1.0, 0.0, 0.7, 1.99}) {
    expect_part_below(numbers, static_cast<float>(bound), (bound + 2) / 4);
  }
  const auto [least, most] = std::ranges::minmax(numbers);
  EXPECT_GE(least, -2);
  EXPECT_LT(most, 2);
}

TEST(FillRandom, NumbersThatShareAGeneratorCallAreUncorrelated) {
  std::vector<float> numbers(kRandomNumbers);
  fill_normal(CounterRandom(3, RandomUse::initialize), 17, 1, numbers);
  for (const std::size_t distance : {1, 2, 4, 16, 32, 64, 96, 128}) {
    EXPECT_NEAR(correlation(numbers, distance), 0, 5 / std::sqrt(double{kRandomNumbers})) << distance;
  }
}

TEST(FillRandom, SameBitsOnAnyNumberOfThreadsAndForAnyLength) {
  const CounterRandom random(3, RandomUse::initialize);
  const int before = thread_count();
  set_thread_count(1);
  std::vector<float> numbers(50001);
  fill_normal(random, 17, 1, numbers);
  set_thread_count(3);
  std::vector<float> again(50001);
  fill_normal(random, 17, 1, again);
  set_thread_count(before);
  EXPECT_EQ(numbers, again);
  std::vector<float> few(77);
  fill_normal(random, 17, 1, few);
  EXPECT_TRUE(std::equal(few.begin(), few.end(), numbers.begin()));
  fill_normal(random, 18, 1, again);
  EXPECT_NE(numbers, again);
}

}  // namespace
}  // namespace distbelief
