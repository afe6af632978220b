#include "server/portion_table.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace distbelief {
namespace {

using Unit = PortionTable::Unit;
using Completed = PortionTable::Completed;

/// Portions of an evaluation that each worker is first to answer, when they all take turns.
std::map<std::uint64_t, std::set<std::int64_t>> evaluate(PortionTable& table,
                                                         const std::vector<std::uint64_t>& workers) {
  std::map<std::uint64_t, std::set<std::int64_t>> found;
  while (!table.done()) {
    for (const std::uint64_t worker : workers) {
      if (const std::optional<Unit> unit = table.request(worker, false)) {
        if (table.complete(worker, unit->id) == Completed::first) {
          for (std::int64_t i = 0; i < unit->portions; ++i) {
            EXPECT_TRUE(found[worker].insert(unit->first_portion + i).second);
          }
        }
      }
    }
  }
  return found;
}

TEST(PortionTable, EverySampleIsInOnePortionWhateverTheSizes) {
  for (const std::int64_t samples : {1, 99, 100, 101, 1234}) {
    PortionTable table({.portion = 100});
    table.begin(samples, 3);
    std::int64_t next = 0;
    while (const std::optional<Unit> unit = table.request(1, false)) {
      EXPECT_EQ(unit->first_sample, next);
      EXPECT_GT(unit->samples, 0);
      next += unit->samples;
      EXPECT_EQ(table.complete(1, unit->id), Completed::first);
    }
    EXPECT_EQ(next, samples);
    EXPECT_TRUE(table.done());
  }
}

TEST(PortionTable, UnitsBecomeShorterTowardsTheEnd) {
  PortionTable table({.portion = 1, .most_portions = 8});
  table.begin(100, 2);
  std::vector<std::int64_t> lengths;
  while (const std::optional<Unit> unit = table.request(1, false)) {
    lengths.push_back(unit->portions);
  }
  EXPECT_EQ(lengths.front(), 8);
  EXPECT_EQ(lengths.back(), 1);
  EXPECT_TRUE(std::ranges::is_sorted(lengths, std::greater<>()));
}

TEST(PortionTable, TheLastAreHandedOutAgainAndTheFirstAnswerWins) {
  PortionTable table({.portion = 10, .most_portions = 1});
  table.begin(20, 2);
  const Unit slow = *table.request(1, false);
  const Unit fast = *table.request(2, false);
  EXPECT_EQ(table.complete(2, fast.id), Completed::first);
  const std::optional<Unit> again = table.request(2, false);
  ASSERT_TRUE(again);
  EXPECT_TRUE(again->backup);
  EXPECT_EQ(again->id, slow.id);
  EXPECT_EQ(again->first_sample, slow.first_sample);
  EXPECT_FALSE(table.request(2, false));  // not a third time
  EXPECT_EQ(table.complete(2, again->id), Completed::first);
  EXPECT_TRUE(table.done());
  EXPECT_EQ(table.complete(1, slow.id), Completed::again);
  const PortionTable::Counts& counts = table.counts();
  EXPECT_EQ(counts.handed_out, 30);
  EXPECT_EQ(counts.done, 20);
  EXPECT_EQ(counts.again, 10);
  EXPECT_EQ(counts.backups, 10);
}

TEST(PortionTable, WithoutBackupsNothingIsHandedOutTwice) {
  PortionTable table({.portion = 10, .backups = false});
  table.begin(10, 2);
  ASSERT_TRUE(table.request(1, false));
  EXPECT_FALSE(table.request(2, false));
}

TEST(PortionTable, WhatALostWorkerHadKeepsItsNumberAndGoesToOthers) {
  PortionTable table({.portion = 10, .most_portions = 2, .backups = false});
  table.begin(80, 1);
  const Unit lost = *table.request(1, false);
  const Unit kept = *table.request(2, false);
  table.lose(1);
  const Unit moved = *table.request(2, true);
  EXPECT_EQ(moved.id, lost.id);
  EXPECT_EQ(moved.first_sample, lost.first_sample);
  EXPECT_EQ(moved.samples, lost.samples);
  EXPECT_EQ(table.complete(1, lost.id), Completed::unknown);
  EXPECT_EQ(table.complete(2, moved.id), Completed::first);
  EXPECT_EQ(table.complete(2, kept.id), Completed::first);
  evaluate(table, {2});
  EXPECT_EQ(table.counts().handed_out, table.counts().done + table.counts().lost);
}

TEST(PortionTable, AnAnswerOfTheEvaluationBeforeIsDroppedAndCounted) {
  PortionTable table({.portion = 10, .most_portions = 1});
  table.begin(10, 1);
  const Unit slow = *table.request(1, false);
  EXPECT_EQ(table.complete(2, table.request(2, false)->id), Completed::first);
  table.begin(10, 1);
  EXPECT_EQ(table.complete(1, slow.id), Completed::again);
  EXPECT_FALSE(table.done());
  EXPECT_GT(table.request(1, false)->id, slow.id);
}

TEST(PortionTable, WorkersKeepTheSamplesThatTheyHold) {
  PortionTable table({.portion = 1, .most_portions = 4});
  table.begin(100, 2);
  const auto first = evaluate(table, {1, 2});
  const std::int64_t moved = table.counts().moved;
  table.begin(100, 2);
  const auto second = evaluate(table, {1, 2});
  EXPECT_EQ(first, second);
  EXPECT_EQ(table.counts().moved, moved);
}

TEST(PortionTable, ALargerBatchKeepsTheSmallerOnesPortions) {
  PortionTable table({.portion = 10});
  table.begin(100, 1);
  evaluate(table, {1});
  table.begin(205, 1);
  EXPECT_EQ(table.portions(), 21);
  EXPECT_EQ(evaluate(table, {1}).at(1).size(), 21U);
}

TEST(PortionTable, WhoAsksAheadGetsNoneOfTheLast) {
  PortionTable table({.portion = 1, .most_portions = 1});
  table.begin(10, 2);
  int ahead = 0;
  while (table.request(1, true)) {
    ++ahead;
  }
  EXPECT_EQ(ahead, 7);  // the rest is less than two for each worker
  EXPECT_TRUE(table.request(2, false));
}

}  // namespace
}  // namespace distbelief
