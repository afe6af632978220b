#include "cluster/lease_table.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace distbelief {
namespace {

std::optional<Lease> granted(const LeaseTable::Answer& answer) {
  return std::holds_alternative<Lease>(answer) ? std::optional(std::get<Lease>(answer)) : std::nullopt;
}
bool waits(const LeaseTable::Answer& answer) { return std::holds_alternative<LeaseTable::Wait>(answer); }
bool finished(const LeaseTable::Answer& answer) { return std::holds_alternative<LeaseTable::Finished>(answer); }

Lease begun(Lease lease) {
  lease.begun = true;
  return lease;
}

TEST(LeaseTable, CutsEpochsIntoContiguousPieces) {
  LeaseTable table({.samples_per_epoch = 10, .epochs = 2, .first_id = 100});
  EXPECT_EQ(granted(table.request(1, 6)), (Lease{.id = 100, .epoch = 0, .first = 0, .count = 6}));
  EXPECT_EQ(granted(table.request(2, 6)), (Lease{.id = 101, .epoch = 0, .first = 6, .count = 4}));
  EXPECT_EQ(granted(table.request(2, 6)), (Lease{.id = 102, .epoch = 1, .first = 0, .count = 6}));
}

TEST(LeaseTable, FinishesWhenEverythingIsDoneAndNotBefore) {
  LeaseTable table({.samples_per_epoch = 4, .epochs = 1});
  const auto mine = granted(table.request(1, 4));
  ASSERT_TRUE(mine);
  EXPECT_TRUE(waits(table.request(2, 4)));
  EXPECT_TRUE(table.complete(1, mine->id));
  EXPECT_TRUE(finished(table.request(2, 4)));
  EXPECT_TRUE(table.finished());
}

TEST(LeaseTable, WithoutSamplesIsFinishedAtOnce) {
  LeaseTable table({.samples_per_epoch = 0, .epochs = 3});
  EXPECT_TRUE(finished(table.request(1, 4)));
}

TEST(LeaseTable, WithholdsTheDeadsLeasesUntilTheyAreFenced) {
  LeaseTable table({.samples_per_epoch = 4, .epochs = 1});
  const auto mine = granted(table.request(1, 4));
  table.orphan(1);
  EXPECT_TRUE(waits(table.request(2, 4)));
  table.release(1);
  EXPECT_EQ(granted(table.request(2, 2)), begun(*mine));  // whole, under its number, whatever the other asks for
  EXPECT_FALSE(table.complete(1, mine->id));
  EXPECT_TRUE(table.complete(2, mine->id));
  EXPECT_FALSE(table.complete(2, mine->id));
}

TEST(LeaseTable, TheDeadCompleteNothing) {
  LeaseTable table({.samples_per_epoch = 4, .epochs = 1});
  const auto mine = granted(table.request(1, 4));
  table.orphan(1);
  EXPECT_FALSE(table.complete(1, mine->id));
}

TEST(LeaseTable, AWarmStartIsOneMembersAlone) {
  LeaseTable table({.samples_per_epoch = 100, .epochs = 1, .warm_samples = 15});
  const auto first = granted(table.request(7, 10));
  ASSERT_TRUE(first);
  EXPECT_EQ(first->count, 10);
  EXPECT_TRUE(waits(table.request(8, 10)));
  const auto second = granted(table.request(7, 10));
  ASSERT_TRUE(second);
  EXPECT_EQ(second->count, 5);  // not a sample more
  EXPECT_TRUE(table.complete(7, first->id));
  EXPECT_TRUE(waits(table.request(8, 10)));
  EXPECT_TRUE(waits(table.request(7, 10)));
  EXPECT_TRUE(table.complete(7, second->id));
  EXPECT_TRUE(granted(table.request(8, 10)));
  EXPECT_TRUE(granted(table.request(7, 10)));
}

TEST(LeaseTable, AnotherMemberEndsTheWarmStartOfADeadOne) {
  LeaseTable table({.samples_per_epoch = 100, .epochs = 1, .warm_samples = 10});
  const auto lease = granted(table.request(7, 10));
  ASSERT_TRUE(lease);
  table.orphan(7);
  EXPECT_TRUE(waits(table.request(8, 10)));  // it may have pushed all of it
  table.release(7);
  EXPECT_EQ(granted(table.request(8, 10)), begun(*lease));
  EXPECT_TRUE(waits(table.request(9, 10)));
  EXPECT_TRUE(table.complete(8, lease->id));
  EXPECT_TRUE(granted(table.request(9, 10)));
}

TEST(LeaseTable, AWarmStartLongerThanTrainingEndsWithIt) {
  LeaseTable table({.samples_per_epoch = 4, .epochs = 1, .warm_samples = 100});
  const auto lease = granted(table.request(1, 10));
  ASSERT_TRUE(lease);
  EXPECT_TRUE(waits(table.request(2, 10)));
  EXPECT_TRUE(table.complete(1, lease->id));
  EXPECT_TRUE(finished(table.request(2, 10)));
}

TEST(LeaseTable, WhatIsGivenBackIsForOthersFromWhereItStands) {
  LeaseTable table({.samples_per_epoch = 8, .epochs = 1});
  const auto mine = granted(table.request(1, 8));
  ASSERT_TRUE(mine);
  EXPECT_FALSE(table.give_back(2, mine->id, 0));
  EXPECT_TRUE(table.give_back(1, mine->id, 3));
  EXPECT_FALSE(table.complete(1, mine->id));
  const auto theirs = granted(table.request(2, 1));
  ASSERT_TRUE(theirs);
  EXPECT_EQ(theirs->id, mine->id);
  EXPECT_EQ(theirs->next_push, 3U);
  EXPECT_TRUE(table.complete(2, mine->id));
  EXPECT_TRUE(table.finished());
}

TEST(LeaseTable, WhatAMemberGaveBackIsForOthersFirst) {
  LeaseTable table({.samples_per_epoch = 8, .epochs = 1});
  const auto slow = granted(table.request(1, 4));
  ASSERT_TRUE(slow);
  EXPECT_TRUE(table.give_back(1, slow->id, 1));
  const auto fresh = granted(table.request(1, 4));
  ASSERT_TRUE(fresh);
  EXPECT_NE(fresh->id, slow->id);
  EXPECT_TRUE(table.complete(1, fresh->id));
  const auto last = granted(table.request(1, 4));  // nothing else is left
  ASSERT_TRUE(last);
  EXPECT_EQ(last->id, slow->id);
  EXPECT_EQ(last->next_push, 1U);
}

TEST(LeaseTable, WhatAMemberGaveBackReturnsToItWhenItsEpochIsOver) {
  LeaseTable table({.samples_per_epoch = 4, .epochs = 9});
  const auto slow = granted(table.request(1, 4));
  ASSERT_TRUE(slow);
  EXPECT_TRUE(table.give_back(1, slow->id, 0));
  EXPECT_EQ(granted(table.request(1, 4)), begun(*slow));  // else this epoch would stay open until the last
}

TEST(LeaseTable, GoesOnWhereAnEarlierOneStood) {
  LeaseTable table({.samples_per_epoch = 10,
                    .first_epoch = 2,
                    .epochs = 3,
                    .first_id = 20,
                    .first_position = 6,
                    .returned = {{.id = 12, .epoch = 1, .first = 4, .count = 4, .next_push = 1}}});
  EXPECT_EQ(granted(table.request(1, 9)), begun({.id = 12, .epoch = 1, .first = 4, .count = 4, .next_push = 1}));
  EXPECT_EQ(granted(table.request(1, 9)), (Lease{.id = 20, .epoch = 2, .first = 6, .count = 4}));
  EXPECT_TRUE(waits(table.request(1, 9)));
}

TEST(LeaseTable, ARedoBeginsAtTheLowestPushThatABlockLacks) {
  LeaseTable table({.samples_per_epoch = 8, .epochs = 1});
  const auto mine = granted(table.request(1, 4));
  const auto other = granted(table.request(2, 4));
  table.orphan(1);
  table.note_progress(1, {{mine->id, 5}});
  table.note_progress(1, {{mine->id, 3}, {other->id, 2}});  // the other is not the dead one's: ignored
  table.note_progress(1, {{mine->id, 4}});
  table.release(1);
  EXPECT_EQ(granted(table.request(2, 4))->next_push, 3U);
  table.orphan(2);
  table.release(2);
  EXPECT_EQ(granted(table.request(3, 4))->next_push, 3U);  // nobody told otherwise
  EXPECT_EQ(granted(table.request(3, 4))->next_push, 0U);
}

TEST(LeaseTable, LowWaterIsTheFirstThatIsNotDone) {
  LeaseTable table({.samples_per_epoch = 3, .epochs = 1, .first_id = 10});
  EXPECT_EQ(table.low_water(), 10U);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(granted(table.request(1, 1)));
  }
  EXPECT_TRUE(table.complete(1, 11));
  EXPECT_EQ(table.low_water(), 10U);
  EXPECT_TRUE(table.complete(1, 10));
  EXPECT_EQ(table.low_water(), 12U);
  table.orphan(1);
  table.release(1);
  EXPECT_EQ(table.low_water(), 12U);
}

TEST(LeaseTable, CoversEachEpochExactlyWhoeverDies) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    constexpr std::int64_t kSamples = 97;
    constexpr std::int64_t kEpochs = 3;
    LeaseTable table({.samples_per_epoch = kSamples, .epochs = kEpochs});
    std::vector<std::vector<int>> done(kEpochs, std::vector<int>(kSamples));
    std::map<std::uint64_t, std::vector<Lease>> held;
    std::uint64_t next_worker = 1 + random() % 7;
    for (std::uint64_t worker = 0; worker < next_worker; ++worker) {
      held[worker];
    }
    int rounds = 0;
    while (!table.finished() && ++rounds < 100000) {
      auto at = std::next(held.begin(), static_cast<long>(random() % held.size()));
      const std::uint64_t worker = at->first;
      switch (random() % 8) {
        case 0:  // dies; another comes
          table.orphan(worker);
          table.release(worker);
          held.erase(at);
          held[next_worker++];
          break;
        case 1:
        case 2:
        case 3:
          if (const auto lease = granted(table.request(worker, 1 + random() % 13))) {
            at->second.push_back(*lease);
          }
          break;
        default:
          if (!at->second.empty()) {
            const Lease lease = at->second.back();
            at->second.pop_back();
            ASSERT_TRUE(table.complete(worker, lease.id));
            for (std::int64_t i = lease.first; i < lease.first + lease.count; ++i) {
              ++done[static_cast<std::size_t>(lease.epoch)][static_cast<std::size_t>(i)];
            }
          }
      }
    }
    EXPECT_EQ(done, std::vector<std::vector<int>>(kEpochs, std::vector<int>(kSamples, 1))) << "seed " << seed;
  }
}

}  // namespace
}  // namespace distbelief
