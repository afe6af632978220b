#include "train/cut_shares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace distbelief {
namespace {

using testing::ElementsAre;

TEST(Shares, OneListIsForEveryStage) {
  EXPECT_THAT(parse_shares("3,1", {.stages = 2, .tensor = 2}), ElementsAre(3, 1, 3, 1));
  EXPECT_THAT(parse_shares("3,1/1,2", {.stages = 2, .tensor = 2}), ElementsAre(3, 1, 1, 2));
  EXPECT_THAT(parse_shares("", {.tensor = 2}), ElementsAre());
  EXPECT_THAT(parse_shares("auto", {.tensor = 2}), ElementsAre());
}

TEST(Shares, WhatIsNoneIsRefused) {
  for (const char* text : {"3", "3,1,1", "3,x", "3,0", "3,-1", "3,", ",3", "3,1/1", "3,1/1,1/1,1", "3,nan"}) {
    EXPECT_THROW((void)parse_shares(text, {.stages = 2, .tensor = 2}), InputError) << text;
  }
}

TEST(Shares, AreInProportionToSpeed) {
  EXPECT_EQ(shares_by_speed({.tensor = 3}, std::vector<std::uint64_t>{1000, 500, 260}), "1,0.5,0.25");
  EXPECT_EQ(shares_by_speed({.tensor = 2}, std::vector<std::uint64_t>{1, 1000}), "0.05,1");
}

TEST(Shares, AreEqualWhereSpeedsHardlyDiffer) {
  EXPECT_EQ(shares_by_speed({.tensor = 2}, std::vector<std::uint64_t>{1000, 930}), "1,1");
  EXPECT_EQ(shares_by_speed({.tensor = 2}, std::vector<std::uint64_t>{0, 0}), "0.05,0.05");
}

TEST(Shares, OfEachStageAreByItsOwnWorkers) {
  EXPECT_EQ(shares_by_speed({.stages = 2, .tensor = 2}, std::vector<std::uint64_t>{8, 4, 6, 6}), "1,0.5/1,1");
}

TEST(Shares, OfCopiesAreThoseOfTheSlowest) {
  EXPECT_EQ(shares_by_speed({.replicas = 2, .tensor = 2}, std::vector<std::uint64_t>{8, 8, 8, 2}), "1,0.25");
}

TEST(Shares, CanBeReadBack) {
  const Grid grid = {.stages = 2, .tensor = 2};
  EXPECT_THAT(parse_shares(shares_by_speed(grid, std::vector<std::uint64_t>{8, 4, 6, 6}), grid),
              ElementsAre(1, 0.5, 1, 1));
}

}  // namespace
}  // namespace distbelief
