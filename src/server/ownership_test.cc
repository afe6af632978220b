#include "server/ownership.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

namespace distbelief {
namespace {

using Holders = Ownership::Holders;
constexpr int kNobody = Ownership::kNobody;

/// Does the steps of all primaries until nothing is left to do, and looks after each whether the table makes sense.
/// The number of copies that were made.
int do_all_steps(Ownership& table) {
  int copies = 0;
  for (int turn = 0; turn < 10'000; ++turn) {
    int shelf = 0;
    while (shelf < table.shelves() &&
           (table.step(shelf) == Ownership::Step::none ||
            (table.step(shelf) == Ownership::Step::copy && table.of(shelf).coming == kNobody))) {
      ++shelf;
    }
    if (shelf == table.shelves()) {
      EXPECT_TRUE(table.settled());
      return copies;
    }
    const Holders now = table.of(shelf);
    switch (table.step(shelf)) {
      case Ownership::Step::none:
        break;
      case Ownership::Step::copy:
        EXPECT_TRUE(table.lives(now.coming) && now.coming != now.primary && now.coming != now.backup);
        table.move(shelf, now.primary, now.coming);
        ++copies;
        break;
      case Ownership::Step::swap:
        EXPECT_TRUE(shelf != 0 || table.leaves(now.primary)) << "who leads stays unless it leaves";
        EXPECT_TRUE(table.lives(now.backup));
        table.move(shelf, now.backup, now.primary);
        break;
      case Ownership::Step::drop:
        table.move(shelf, now.primary, kNobody);
        break;
    }
  }
  ADD_FAILURE() << "it never comes to rest";
  return copies;
}

std::map<int, int> shelves_held(const Ownership& table, int Holders::*as) {
  std::map<int, int> held;
  for (int shelf = 0; shelf < table.shelves(); ++shelf) {
    ++held[table.of(shelf).*as];
  }
  return held;
}

TEST(Ownership, EachShelfBeginsWithItsServerAndTheNextOneAsItsBackup) {
  const Ownership four({"a", "a", "a", "a"}, 2, 4);
  for (int shelf = 0; shelf < 4; ++shelf) {
    EXPECT_EQ(four.of(shelf), (Holders{shelf, (shelf + 1) % 4}));
  }
  EXPECT_EQ(four.leader(), 0);
  EXPECT_TRUE(four.settled());
  EXPECT_EQ(Ownership({"a"}, 2, 1).of(0), (Holders{0, kNobody}));
  EXPECT_EQ(Ownership({"a", "a"}, 1, 2).of(1), (Holders{1, kNobody}));
  EXPECT_EQ(Ownership({"a", "a"}, 2, 4).of(3), (Holders{1, 0}));
}

TEST(Ownership, ABackupIsOnAnotherHostWhereThereIsOne) {
  const Ownership table({"a", "a", "b", "b"}, 2, 4);
  std::set<int> backups;
  for (int shelf = 0; shelf < 4; ++shelf) {
    EXPECT_NE(table.of(shelf).primary / 2, table.of(shelf).backup / 2);
    backups.insert(table.of(shelf).backup);
  }
  EXPECT_EQ(backups.size(), 4U);
}

TEST(Ownership, TheBackupOfTheLostAnswersAndSomebodyElseGetsACopy) {
  Ownership table({"a", "a", "a"}, 2, 3);
  table.lose(0);
  EXPECT_EQ(table.of(0), (Holders{1, kNobody, 2}));
  EXPECT_EQ(table.of(1), (Holders{1, 2}));
  EXPECT_EQ(table.of(2), (Holders{2, kNobody, 1}));
  EXPECT_EQ(table.leader(), 1);
  table.lose(0);
  EXPECT_EQ(table.leader(), 1) << "it is lost already";
  EXPECT_EQ(do_all_steps(table), 2);
  EXPECT_EQ(table.of(0), (Holders{1, 2}));
  table.lose(1);
  for (int shelf = 0; shelf < 3; ++shelf) {
    EXPECT_EQ(table.of(shelf), (Holders{2, kNobody}));
  }
  table.lose(2);
  EXPECT_EQ(table.leader(), kNobody);
}

TEST(Ownership, ACopyThatIsNotWholeIsLostWithItsPrimary) {
  Ownership table({"a", "a", "a"}, 2, 3);
  table.lose(0);
  table.lose(1);
  EXPECT_EQ(table.of(0).primary, kNobody);
  EXPECT_EQ(table.of(1), (Holders{2, kNobody}));
}

TEST(Ownership, WithoutBackupsAShelfIsLostWithItsServer) {
  Ownership table({"a", "a"}, 1, 2);
  table.lose(1);
  EXPECT_EQ(table.of(0).primary, 0);
  EXPECT_EQ(table.of(1).primary, kNobody);
  EXPECT_TRUE(table.settled());
}

TEST(Ownership, HolderAlwaysLivesAndTheTwoAreNeverTheSame) {
  for (int first = 0; first < 6; ++first) {
    for (int second = 0; second < 6; ++second) {
      Ownership table({"a", "b", "a", "b", "c", "c"}, 2, 6);
      table.lose(first);
      do_all_steps(table);
      table.lose(second);
      do_all_steps(table);
      for (int shelf = 0; shelf < 6; ++shelf) {
        const Holders& holders = table.of(shelf);
        ASSERT_NE(holders.primary, kNobody);
        ASSERT_NE(holders.backup, kNobody);
        EXPECT_NE(holders.primary, holders.backup);
        EXPECT_TRUE(table.lives(holders.primary) && table.lives(holders.backup));
      }
    }
  }
}

TEST(Ownership, WhoJoinsTakesItsShareAndNothingElseMoves) {
  Ownership table({"a"}, 2, 12);
  table.join(3, "b");                  // numbers of workers that came are left out
  EXPECT_EQ(do_all_steps(table), 12);  // half of two copies of everything
  EXPECT_EQ(shelves_held(table, &Holders::primary), (std::map<int, int>{{0, 6}, {3, 6}}));
  EXPECT_EQ(shelves_held(table, &Holders::backup), (std::map<int, int>{{0, 6}, {3, 6}}));
  table.join(4, "c");
  EXPECT_EQ(do_all_steps(table), 8);  // a third
  EXPECT_EQ(shelves_held(table, &Holders::primary), (std::map<int, int>{{0, 4}, {3, 4}, {4, 4}}));
  EXPECT_EQ(shelves_held(table, &Holders::backup), (std::map<int, int>{{0, 4}, {3, 4}, {4, 4}}));
  EXPECT_EQ(table.leader(), 0);
}

TEST(Ownership, WhoLeavesHandsOverWhatItHoldsAndNothingElseMoves) {
  Ownership table({"a", "b", "c"}, 2, 12);
  table.leave(2);
  EXPECT_TRUE(table.leaves(2));
  EXPECT_TRUE(table.holds_something(2));
  EXPECT_EQ(do_all_steps(table), 8);
  EXPECT_FALSE(table.holds_something(2));
  EXPECT_EQ(shelves_held(table, &Holders::primary), (std::map<int, int>{{0, 6}, {1, 6}}));
  EXPECT_EQ(shelves_held(table, &Holders::backup), (std::map<int, int>{{0, 6}, {1, 6}}));
  table.leave(1);
  EXPECT_EQ(do_all_steps(table), 0);  // the other has all of it
  EXPECT_EQ(shelves_held(table, &Holders::primary), (std::map<int, int>{{0, 12}}));
  EXPECT_EQ(shelves_held(table, &Holders::backup), (std::map<int, int>{{kNobody, 12}}));
}

TEST(Ownership, WithOneCopyShelvesMoveToo) {
  Ownership table({"a"}, 1, 12);
  table.join(1, "a");
  table.join(2, "a");
  EXPECT_EQ(do_all_steps(table), 8);
  EXPECT_EQ(shelves_held(table, &Holders::primary), (std::map<int, int>{{0, 4}, {1, 4}, {2, 4}}));
  EXPECT_EQ(shelves_held(table, &Holders::backup), (std::map<int, int>{{kNobody, 12}}));
  table.leave(1);
  EXPECT_EQ(do_all_steps(table), 4);
  EXPECT_EQ(shelves_held(table, &Holders::primary), (std::map<int, int>{{0, 6}, {2, 6}}));
}

TEST(Ownership, WhoLeadsHandsOverTheLeadToItsBackup) {
  Ownership table({"a", "b", "c"}, 2, 12);
  const int next = table.of(0).backup;
  table.leave(0);
  EXPECT_EQ(table.leader(), 0);
  EXPECT_EQ(table.step(0), Ownership::Step::swap);
  EXPECT_EQ(do_all_steps(table), 8);
  EXPECT_EQ(table.leader(), next);
  EXPECT_FALSE(table.holds_something(0));
  EXPECT_EQ(shelves_held(table, &Holders::primary), (std::map<int, int>{{1, 6}, {2, 6}}));
  EXPECT_EQ(shelves_held(table, &Holders::backup), (std::map<int, int>{{1, 6}, {2, 6}}));
}

TEST(Ownership, WithOneCopyWhoLeadsHandsOverTheLeadWithACopy) {
  Ownership table({"a", "a"}, 1, 4);
  table.leave(0);
  EXPECT_EQ(table.step(0), Ownership::Step::copy);
  EXPECT_EQ(do_all_steps(table), 2);
  EXPECT_EQ(shelves_held(table, &Holders::primary), (std::map<int, int>{{1, 4}}));
}

TEST(Ownership, TheLastThatStaysCannotLeaveAndWhenItIsLostTheOthersStay) {
  Ownership table({"a", "a", "a"}, 2, 6);
  table.leave(0);
  table.leave(1);
  table.leave(2);
  EXPECT_TRUE(table.leaves(0) && table.leaves(1));
  EXPECT_FALSE(table.leaves(2));
  table.lose(2);
  EXPECT_FALSE(table.leaves(0) || table.leaves(1));
  do_all_steps(table);
  EXPECT_EQ(shelves_held(table, &Holders::primary), (std::map<int, int>{{0, 3}, {1, 3}}));
  table.leave(1);
  do_all_steps(table);
  table.lose(0);
  EXPECT_EQ(table.leader(), kNobody) << "who holds nothing may have gone";
}

TEST(Ownership, CountsWhatChangesThePlanAsTheCoordinatorDoes) {
  Ownership table({"a", "a"}, 2, 4);
  table.join(2, "a");
  table.leave(2);
  table.lose(1);
  EXPECT_EQ(table.changes(), 3U);
  do_all_steps(table);
  EXPECT_EQ(table.changes(), 3U);
}

/// Whatever happens in the middle of whatever, as long as what has one holder is not lost.
TEST(Ownership, ComesToRestWithEvenSharesWhateverHappens) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 draw(seed);
    const int copies = draw() % 4 == 0 ? 1 : 2;
    Ownership table({"a", "b"}, copies, 12);
    int next = 2;
    for (int event = 0; event < 12; ++event) {
      const std::vector<int> living = table.living();
      const int one = living[draw() % living.size()];
      const bool is_last_holder = [&] {
        for (int shelf = 0; shelf < table.shelves(); ++shelf) {
          if (table.of(shelf).primary == one && table.of(shelf).backup == kNobody) {
            return true;
          }
        }
        return false;
      }();
      switch (draw() % 4) {
        case 0:
          table.join(next++, draw() % 2 == 0 ? "a" : "b");
          break;
        case 1:
          table.leave(one);
          break;
        case 2:
          if (!is_last_holder && living.size() > 1) {
            table.lose(one);
          }
          break;
        default:
          break;
      }
      for (unsigned steps = draw() % 8; steps > 0; --steps) {  // only some of them
        const int shelf = static_cast<int>(draw() % 12);
        const Holders now = table.of(shelf);
        if (table.step(shelf) == Ownership::Step::copy && now.coming != kNobody) {
          table.move(shelf, now.primary, now.coming);
        } else if (table.step(shelf) == Ownership::Step::swap) {
          table.move(shelf, now.backup, now.primary);
        }
      }
    }
    do_all_steps(table);
    int staying = 0;
    int fewest = 12;
    int most = 0;
    std::map<int, int> held = shelves_held(table, &Holders::primary);
    for (const int server : table.living()) {
      if (table.leaves(server)) {
        EXPECT_FALSE(table.holds_something(server)) << "seed " << seed;
        continue;
      }
      ++staying;
      fewest = std::min(fewest, held[server]);
      most = std::max(most, held[server]);
    }
    for (int shelf = 0; shelf < 12; ++shelf) {
      ASSERT_NE(table.of(shelf).primary, kNobody) << "seed " << seed;
      EXPECT_EQ(table.of(shelf).backup != kNobody, copies == 2 && staying > 1) << "seed " << seed;
    }
    if (next > 2) {
      EXPECT_LE(most - fewest, 1) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace distbelief
