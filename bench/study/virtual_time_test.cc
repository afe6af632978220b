#include "virtual_time.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace distbelief {
namespace {

/// Whose step ends, in this order, when each learner goes on at once.
std::vector<int> ends(std::uint64_t seed, int learners, int count, VirtualTime::Spread spread) {
  VirtualTime time(learners, seed, spread);
  for (int learner = 0; learner < learners; ++learner) {
    time.begin(learner);
  }
  std::vector<int> order;
  double before = 0;
  for (int i = 0; i < count; ++i) {
    order.push_back(time.next_end());
    EXPECT_GE(time.now(), before);
    before = time.now();
    time.begin(order.back());
  }
  return order;
}

TEST(VirtualTime, OrderIsAFunctionOfTheSeed) {
  EXPECT_EQ(ends(1, 30, 300, {}), ends(1, 30, 300, {}));
  EXPECT_NE(ends(1, 30, 300, {}), ends(2, 30, 300, {}));
}

TEST(VirtualTime, WithoutSpreadLearnersTakeTurns) {
  EXPECT_EQ(ends(1, 3, 7, {.learner = 0, .step = 0}), (std::vector<int>{0, 1, 2, 0, 1, 2, 0}));
}

TEST(VirtualTime, SomeLearnersAreFasterForGood) {
  const std::vector<int> order = ends(1, 10, 10000, {.learner = 0.3, .step = 0.1});
  std::vector<std::int64_t> counts;
  for (int learner = 0; learner < 10; ++learner) {
    counts.push_back(std::ranges::count(order, learner));
  }
  EXPECT_GT(std::ranges::max(counts), std::ranges::min(counts) * 3 / 2);
  EXPECT_GT(std::ranges::min(counts), 300);
}

}  // namespace
}  // namespace distbelief
