#include "base/split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace distbelief {
namespace {

using testing::ElementsAre;

TEST(Split, GivesWhatStandsBetweenSeparators) {
  EXPECT_THAT(split("a,bc,d", ','), ElementsAre("a", "bc", "d"));
  EXPECT_THAT(split("a/b", ','), ElementsAre("a/b"));
}

TEST(Split, KeepsEmptyParts) {
  EXPECT_THAT(split("", ','), ElementsAre(""));
  EXPECT_THAT(split(",a,,", ','), ElementsAre("", "a", "", ""));
}

}  // namespace
}  // namespace distbelief
