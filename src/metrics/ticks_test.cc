#include "metrics/ticks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace distbelief {
namespace {

std::vector<std::string> labels(const Axis& axis) {
  std::vector<std::string> texts;
  for (const double tick : axis.ticks) {
    texts.push_back(tick_label(axis, tick));
  }
  return texts;
}

TEST(NiceAxis, BeginsAndEndsAtRoundNumbers) {
  EXPECT_THAT(labels(nice_axis(0.03, 0.97, 5)), testing::ElementsAre("0", "0.2", "0.4", "0.6", "0.8", "1.0"));
  EXPECT_THAT(labels(nice_axis(81.3, 91.2, 4)), testing::ElementsAre("80", "82", "84", "86", "88", "90", "92"));
  EXPECT_THAT(labels(nice_axis(0, 41000, 4)), testing::ElementsAre("0", "10k", "20k", "30k", "40k", "50k"));
  EXPECT_THAT(labels(nice_axis(0, 2400, 4)), testing::ElementsAre("0", "500", "1,000", "1,500", "2,000", "2,500"));
  EXPECT_THAT(labels(nice_axis(-1, 1, 2)), testing::ElementsAre("-1", "0", "1"));
  EXPECT_THAT(labels(nice_axis(0, 0.0001, 2)), testing::ElementsAre("0", "5e-05", "0.0001"));
}

TEST(NiceAxis, ExactOnesEndWithTheirValuesOrATickCloseBy) {
  const Axis axis = nice_axis(0.4, 4.7, 5, true);
  EXPECT_EQ(axis.low, 0.4);
  EXPECT_EQ(axis.high, 4.7);
  EXPECT_THAT(labels(axis), testing::ElementsAre("1", "2", "3", "4"));
  EXPECT_THAT(labels(nice_axis(0, 4.995, 5, true)), testing::ElementsAre("0", "1", "2", "3", "4", "5"));
}

TEST(LogAxis, HasTicksAtRoundNumbersBetweenItsEnds) {
  const Axis axis = log_axis(0.8, 130);
  EXPECT_THAT(labels(axis), testing::ElementsAre("1", "2", "5", "10", "20", "50", "100"));
  EXPECT_DOUBLE_EQ(axis.place(0.8), 0);
  EXPECT_DOUBLE_EQ(axis.place(130), 1);
  EXPECT_NEAR(axis.place(std::sqrt(0.8 * 130)), 0.5, 1e-12);
  EXPECT_THAT(labels(log_axis(6e4, 7e6)), testing::ElementsAre("100k", "200k", "500k", "1M", "2M", "5M"));
  EXPECT_THAT(labels(log_axis(1, 1e5)), testing::ElementsAre("1", "10", "100", "1k", "10k", "100k"));
}

TEST(LogAxis, OneValueAloneHasRoom) { EXPECT_EQ(log_axis(3, 3).place(6), 1); }

TEST(NiceAxis, AnyFiniteRangeWorks) {
  const double most = std::numeric_limits<double>::max();
  const double least = std::numeric_limits<double>::denorm_min();
  for (const auto& [low, high] : std::vector<std::pair<double, double>>{
           {0, 0}, {5, 5}, {-3, -3}, {-most, most}, {0, least}, {1, 1 + 1e-16}, {1e300, 1e300}, {2, 1}, {0, most}}) {
    const Axis axis = nice_axis(low, high, 5);
    EXPECT_LT(axis.low, axis.high) << low << " " << high;
    EXPECT_GE(axis.ticks.size(), 2U) << low << " " << high;
    EXPECT_LE(axis.ticks.size(), 20U) << low << " " << high;
    EXPECT_TRUE(std::isfinite(axis.place(low))) << low << " " << high;
  }
}

}  // namespace
}  // namespace distbelief
