#include "train/regrid.h"

#include <gtest/gtest.h>

namespace distbelief {
namespace {

/// `lost` of copies × parts workers, all of whom have made step 7.
std::vector<PartStand> stands_without(int copies, int parts, const std::vector<int>& lost) {
  std::vector<PartStand> stands;
  for (int rank = 0; rank < copies * parts; ++rank) {
    if (std::ranges::find(lost, rank) == lost.end()) {
      stands.push_back(
          {.rank = Rank{rank}, .knows = true, .step = 7, .epoch = 1, .part = rank % parts, .copy = rank / parts});
    }
  }
  return stands;
}

std::vector<int> values(const std::vector<Rank>& ranks) {
  std::vector<int> all;
  for (const Rank rank : ranks) {
    all.push_back(rank.value);
  }
  return all;
}

TEST(Regrid, GivesUpTheCopyThatLostAWorker) {
  const std::optional<Regrid> made = regrid(2, stands_without(3, 2, {5}));
  ASSERT_TRUE(made);
  EXPECT_EQ(made->copies, 2);
  EXPECT_EQ(values(made->members), (std::vector{0, 1, 2, 3}));
  EXPECT_EQ(values(made->spare), (std::vector{4}));
}

TEST(Regrid, MakesACopyOfWhatIsLeftOfTwo) {
  const std::optional<Regrid> made = regrid(2, stands_without(3, 2, {0, 3}));
  ASSERT_TRUE(made);
  EXPECT_EQ(made->copies, 2);
  EXPECT_EQ(values(made->members), (std::vector{4, 5, 2, 1}));
  EXPECT_TRUE(made->spare.empty());
}

TEST(Regrid, GoesOnWithoutAWholeCopyWhenEveryPartHasAHolder) {
  const std::optional<Regrid> made = regrid(2, stands_without(2, 2, {0, 3}));
  ASSERT_TRUE(made);
  EXPECT_EQ(values(made->members), (std::vector{2, 1}));
}

TEST(Regrid, CannotWhenAPartIsNobodys) {
  EXPECT_FALSE(regrid(2, stands_without(1, 2, {1})));
  EXPECT_FALSE(regrid(4, stands_without(2, 4, {2, 6})));
  EXPECT_FALSE(regrid(2, {}));
}

std::vector<PartStand> with_newcomers(std::vector<PartStand> stands, int first, int count) {
  for (int rank = first; rank < first + count; ++rank) {
    stands.push_back({.rank = Rank{rank}, .part = kNoPart});
  }
  return stands;
}

TEST(Regrid, GivesWhoCameThePlaceOfTheDeadAndSaysFromWhomItsPartComes) {
  const std::optional<Regrid> made = regrid(2, with_newcomers(stands_without(3, 2, {3}), 6, 1));
  ASSERT_TRUE(made);
  EXPECT_EQ(made->copies, 3);
  EXPECT_EQ(values(made->members), (std::vector{0, 1, 4, 5, 2, 6}));
  EXPECT_TRUE(made->spare.empty());
  ASSERT_EQ(made->handovers.size(), 1U);
  EXPECT_EQ(values(made->handovers.at(1)), (std::vector{1, 6}));
}

TEST(Regrid, MakesAWholeCopyOfThoseWhoCame) {
  const std::optional<Regrid> made = regrid(2, with_newcomers(stands_without(2, 2, {0, 1}), 4, 2));
  ASSERT_TRUE(made);
  EXPECT_EQ(values(made->members), (std::vector{2, 3, 4, 5}));
  EXPECT_EQ(values(made->handovers.at(0)), (std::vector{2, 4}));
  EXPECT_EQ(values(made->handovers.at(1)), (std::vector{3, 5}));
}

TEST(Regrid, HasNoUseForTooFewWhoCame) {
  const std::optional<Regrid> made = regrid(2, with_newcomers(stands_without(2, 2, {0, 1}), 4, 1));
  ASSERT_TRUE(made);
  EXPECT_EQ(values(made->members), (std::vector{2, 3}));
  EXPECT_EQ(values(made->spare), (std::vector{4}));
  EXPECT_TRUE(made->handovers.empty());
}

TEST(Regrid, MakesOneMoreCopyOfThoseWhoCame) {
  const std::optional<Regrid> made = regrid(2, with_newcomers(stands_without(1, 2, {}), 2, 2));
  ASSERT_TRUE(made);
  EXPECT_EQ(made->copies, 2);
  EXPECT_EQ(values(made->members), (std::vector{0, 1, 2, 3}));
  EXPECT_EQ(values(made->handovers.at(0)), (std::vector{0, 2}));
  EXPECT_EQ(values(made->handovers.at(1)), (std::vector{1, 3}));
}

std::vector<PartStand> with_leavers(std::vector<PartStand> stands, const std::vector<int>& leavers) {
  for (PartStand& stand : stands) {
    stand.leaves = std::ranges::find(leavers, stand.rank.value) != leavers.end();
  }
  return stands;
}

TEST(Regrid, GivesUpTheCopyOfWhoLeaves) {
  const std::optional<Regrid> made = regrid(2, with_leavers(stands_without(3, 2, {}), {2}));
  ASSERT_TRUE(made);
  EXPECT_EQ(values(made->members), (std::vector{0, 1, 4, 5}));
  EXPECT_EQ(values(made->spare), (std::vector{2, 3}));
}

TEST(Regrid, HasWhoLeavesHandOverThePartThatNobodyElseHas) {
  const std::optional<Regrid> made = regrid(2, with_newcomers(with_leavers(stands_without(1, 2, {}), {1}), 2, 1));
  ASSERT_TRUE(made);
  EXPECT_EQ(values(made->members), (std::vector{0, 2}));
  EXPECT_EQ(values(made->spare), (std::vector{1}));
  EXPECT_EQ(values(made->handovers.at(1)), (std::vector{1, 2}));
}

TEST(Regrid, KeepsAsManyOfThoseWhoAreToLeaveAsACopyNeeds) {
  std::optional<Regrid> made = regrid(2, with_leavers(stands_without(1, 2, {}), {1}));
  ASSERT_TRUE(made);
  EXPECT_EQ(values(made->members), (std::vector{0, 1}));
  made = regrid(2, with_leavers(stands_without(2, 2, {}), {1, 3}));  // who have the same part
  ASSERT_TRUE(made);
  EXPECT_EQ(values(made->members), (std::vector{0, 1}));
  EXPECT_EQ(values(made->spare), (std::vector{2, 3}));
}

TEST(Regrid, MakesNoMoreCopiesThanAreWanted) {
  std::optional<Regrid> made = regrid(2, stands_without(3, 2, {}), 2);
  ASSERT_TRUE(made);
  EXPECT_EQ(values(made->members), (std::vector{0, 1, 2, 3}));
  EXPECT_EQ(values(made->spare), (std::vector{4, 5}));
  made = regrid(2, with_newcomers(stands_without(1, 2, {}), 2, 2), 1);
  ASSERT_TRUE(made);
  EXPECT_EQ(values(made->members), (std::vector{0, 1}));
  EXPECT_TRUE(made->handovers.empty());
}

TEST(Regrid, CannotWhenAPartIsOnlyWithThoseWhoCame) {
  EXPECT_FALSE(regrid(2, with_newcomers(stands_without(1, 2, {1}), 2, 1)));
  EXPECT_FALSE(regrid(2, with_newcomers(stands_without(2, 2, {1, 3}), 4, 2)));
  EXPECT_FALSE(regrid(2, with_newcomers({}, 4, 2)));
}

TEST(Regrid, HasAsManyCopiesAsTheRarestPartHasHolders) {
  for (int first = 0; first < 12; ++first) {
    for (int second = 0; second < 12; ++second) {
      const std::vector<PartStand> stands = stands_without(4, 3, {first, second});
      const std::optional<Regrid> made = regrid(3, stands);
      ASSERT_TRUE(made);
      EXPECT_EQ(made->copies, first != second && first % 3 == second % 3 ? 2 : 3);
      EXPECT_EQ(made->members.size() + made->spare.size(), stands.size());
      for (std::size_t i = 0; i < made->members.size(); ++i) {
        EXPECT_EQ(made->members[i].value % 3, static_cast<int>(i % 3));
      }
    }
  }
}

TEST(Regrid, RollsForwardToTheStepThatOneHasMade) {
  std::vector<PartStand> stands = stands_without(2, 2, {2});
  stands[1].step = 8;
  stands[1].epoch = 2;
  EXPECT_FALSE(regrid(2, stands));  // which cannot be, as all were prepared before one made it
  stands[0].prepared = 8;
  const std::optional<Regrid> made = regrid(2, stands);
  ASSERT_TRUE(made);
  EXPECT_EQ(made->step, 8);
  EXPECT_EQ(made->source, 1U);
  EXPECT_EQ(values(made->members), (std::vector{0, 1}));
}

TEST(Regrid, HasWhoIsBehindGetItsPartFromWhoIsNot) {
  std::vector<PartStand> stands = stands_without(3, 2, {3});
  stands[0].step = 4;  // the last time that all were together, of which nobody has told it since
  const std::optional<Regrid> made = regrid(2, stands);
  ASSERT_TRUE(made);
  EXPECT_EQ(made->step, 7);
  EXPECT_EQ(values(made->members), (std::vector{0, 1, 4, 5}));
  EXPECT_EQ(made->handovers.size(), 1U);
  EXPECT_EQ(values(made->handovers.at(0)), (std::vector{2, 0}));
  EXPECT_TRUE(made->gets_state(Rank{0}));
  EXPECT_FALSE(made->gets_state(Rank{2}));
}

TEST(Regrid, HasWhoHasNoStateOfTheStrategyGetItFromWhoDoes) {
  std::vector<PartStand> stands = with_newcomers(stands_without(3, 2, {0}), 6, 1);
  for (PartStand& stand : stands) {
    stand.knows = stand.copy < 2 && stand.part != kNoPart;
  }
  const std::optional<Regrid> made = regrid(2, stands);
  ASSERT_TRUE(made);
  EXPECT_EQ(values(made->members), (std::vector{2, 3, 4, 5, 6, 1}));
  EXPECT_EQ(values(made->handovers.at(0)), (std::vector{2, 4, 6}));
  EXPECT_EQ(values(made->handovers.at(1)), (std::vector{1, 5}));
}

TEST(Regrid, DoesNotMixNetworksThatWereCutDifferently) {
  std::vector<PartStand> stands = stands_without(2, 2, {2});
  stands[2].generation = 1;
  EXPECT_FALSE(regrid(2, stands));
  stands = stands_without(2, 2, {});
  for (PartStand& stand : stands) {
    stand.knows = false;
  }
  EXPECT_FALSE(regrid(2, stands));
}

}  // namespace
}  // namespace distbelief
