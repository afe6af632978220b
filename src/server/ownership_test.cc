#include "server/ownership.h"

#include <gtest/gtest.h>

#include <set>

namespace distbelief {
namespace {

TEST(Ownership, EachShelfBeginsWithItsServerAndTheNextOneAsItsBackup) {
  const Ownership four({"a", "a", "a", "a"}, 2);
  for (int shelf = 0; shelf < 4; ++shelf) {
    EXPECT_EQ(four.of(shelf), (Ownership::Holders{shelf, (shelf + 1) % 4}));
  }
  EXPECT_EQ(four.leader(), 0);
  EXPECT_EQ(Ownership({"a"}, 2).of(0), (Ownership::Holders{0, Ownership::kNobody}));
  EXPECT_EQ(Ownership({"a", "a"}, 1).of(1), (Ownership::Holders{1, Ownership::kNobody}));
}

TEST(Ownership, ABackupIsOnAnotherHostWhereThereIsOne) {
  const Ownership table({"a", "a", "b", "b"}, 2);
  std::set<int> backups;
  for (int shelf = 0; shelf < 4; ++shelf) {
    EXPECT_NE(table.of(shelf).primary / 2, table.of(shelf).backup / 2);
    backups.insert(table.of(shelf).backup);
  }
  EXPECT_EQ(backups.size(), 4U);
}

TEST(Ownership, TheBackupOfTheLostAnswersAndSomebodyElseBecomesABackup) {
  Ownership table({"a", "a", "a"}, 2);
  table.lose(0);
  EXPECT_EQ(table.of(0), (Ownership::Holders{1, 2}));
  EXPECT_EQ(table.of(1), (Ownership::Holders{1, 2}));
  EXPECT_EQ(table.of(2), (Ownership::Holders{2, 1}));
  EXPECT_EQ(table.leader(), 1);
  EXPECT_EQ(table.losses(), 1U);
  table.lose(0);
  EXPECT_EQ(table.losses(), 1U);
  table.lose(1);
  for (int shelf = 0; shelf < 3; ++shelf) {
    EXPECT_EQ(table.of(shelf), (Ownership::Holders{2, Ownership::kNobody}));
  }
  table.lose(2);
  EXPECT_EQ(table.leader(), Ownership::kNobody);
}

TEST(Ownership, WithoutBackupsAShelfIsLostWithItsServer) {
  Ownership table({"a", "a"}, 1);
  table.lose(1);
  EXPECT_EQ(table.of(0).primary, 0);
  EXPECT_EQ(table.of(1).primary, Ownership::kNobody);
}

TEST(Ownership, HolderAlwaysLivesAndTheTwoAreNeverTheSame) {
  for (int first = 0; first < 6; ++first) {
    for (int second = 0; second < 6; ++second) {
      Ownership table({"a", "b", "a", "b", "c", "c"}, 2);
      table.lose(first);
      table.lose(second);
      for (int shelf = 0; shelf < 6; ++shelf) {
        const Ownership::Holders& holders = table.of(shelf);
        ASSERT_NE(holders.primary, Ownership::kNobody);
        ASSERT_NE(holders.backup, Ownership::kNobody);
        EXPECT_NE(holders.primary, holders.backup);
        EXPECT_TRUE(table.lives(holders.primary) && table.lives(holders.backup));
      }
    }
  }
}

}  // namespace
}  // namespace distbelief
