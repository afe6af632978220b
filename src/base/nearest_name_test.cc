#include "base/nearest_name.h"

#include <gtest/gtest.h>

#include <array>

namespace distbelief {
namespace {

constexpr std::array<std::string_view, 3> kNames = {"momentum", "adam", "adagrad"};

TEST(NearestName, FindsTheFewestEdits) {
  EXPECT_EQ(nearest_name("adma", kNames), "adam");
  EXPECT_EQ(nearest_name("momentun", kNames), "momentum");
  EXPECT_EQ(nearest_name("adgrad", kNames), "adagrad");
  EXPECT_EQ(nearest_name("x", {}), "");
}

TEST(NearestName, SuggestsOnlyWhatIsClose) {
  EXPECT_EQ(did_you_mean("momentm", kNames), "; did you mean 'momentum'?");
  EXPECT_EQ(did_you_mean("zzzzzzzz", kNames), "");
  EXPECT_EQ(did_you_mean("x", {}), "");
}

TEST(NearestName, TellsAMisspellingFromAnotherWord) {
  EXPECT_TRUE(is_misspelling("unit", "units"));
  EXPECT_TRUE(is_misspelling("Momentum", "momentum"));
  EXPECT_FALSE(is_misspelling("bias", "units"));
  EXPECT_TRUE(is_misspelling("--trheads", "--threads"));
  EXPECT_TRUE(is_misspelling("adm", "adam"));
  EXPECT_FALSE(is_misspelling("--frobnicate", "--replicas"));
  EXPECT_FALSE(is_misspelling("--version", "--epsilon"));
  EXPECT_FALSE(is_misspelling("x", "n"));
}

TEST(NearestName, ListsNames) {
  EXPECT_EQ(listed(kNames), "momentum, adam, adagrad");
  EXPECT_EQ(listed({}), "");
}

}  // namespace
}  // namespace distbelief
