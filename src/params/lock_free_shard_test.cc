#include "params/lock_free_shard.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <thread>

#include "base/random.h"
#include "params/test_numbers.h"

namespace distbelief {
namespace {

using Floats = std::vector<float>;
using Rows = std::vector<std::int32_t>;

constexpr std::int64_t kRows = 500;

/// A dense parameter of several pieces, one with rows of 3, one with rows of 1, and statistics.
ParameterTable test_table(std::int64_t row_floats = 3) {
  ParameterTable table;
  table.add("dense", {.name = "dense", .shape = {2500}, .init = {}});
  table.add("rows", {.name = "rows", .shape = {kRows, row_floats}, .init = {}, .row_floats = row_floats});
  table.add("single", {.name = "single", .shape = {kRows}, .init = {}, .decays = false, .row_floats = 1});
  table.add("mean", {.name = "mean", .shape = {4}, .init = {}, .kind = ParameterKind::averaged});
  return table;
}

std::vector<TouchedRows> touch(const ParameterTable& table, const Rows& rows) {
  return {{&table.at("rows"), rows}, {&table.at("single"), rows}};
}

/// What a dense gradient has where `touched` has nothing.
Floats with_zeros_elsewhere(const ParameterTable& table, const Floats& gradient,
                            const std::vector<TouchedRows>& touched) {
  Floats whole = gradient;
  for (const char* name : {"rows", "single"}) {
    const Range range = table.at(name).range;
    std::fill(whole.begin() + range.begin, whole.begin() + range.end, 0.0F);
  }
  for (const TouchedRows& part : touched) {
    for (const std::int32_t row : part.rows) {
      std::copy_n(gradient.begin() + part.offset(row), part.row_floats(), whole.begin() + part.offset(row));
    }
  }
  return whole;
}

struct Shared {
  explicit Shared(const ParameterTable& table, const std::string& rule_name = "sgd")
      : rule(make_rule({.name = rule_name})),
        values(test_numbers(static_cast<std::size_t>(table.size()), 1)),
        copy(values.size(), std::numeric_limits<float>::quiet_NaN()),
        shard(table, *rule, values) {}

  std::unique_ptr<UpdateRule> rule;
  Floats values;
  Floats copy;
  LockFreeShard shard;
};

TEST(LockFreeShard, OneThreadGivesTheBitsOfAParameterShard) {
  for (const std::int64_t row_floats : {1, 3, 100}) {
    const ParameterTable table = test_table(row_floats);
    for (const char* rule : {"sgd", "adagrad"}) {
      for (const float clip : {0.0F, 0.5F}) {
        Shared free(table, rule);
        Floats values = free.values;
        ParameterShard locked(table, table.everything(), *free.rule, values);
        for (std::uint64_t i = 0; i < 5; ++i) {
          const Rows rows = {7, 3, 499, static_cast<std::int32_t>(20 + i), 0};
          const std::vector<TouchedRows> touched = touch(table, rows);
          const Floats gradient = test_numbers(static_cast<std::size_t>(table.size()), 10 + i);
          const UpdateOptions options = {.rate = 0.3F, .clip_value = clip};
          EXPECT_EQ(free.shard.apply({gradient, touched}, 0.25F, options, free.copy).result, ApplyResult::applied);
          const Floats whole = with_zeros_elsewhere(table, gradient, touched);
          const std::span<const float> part = whole;
          EXPECT_EQ(locked.apply({0, i}, {&part, 1}, 0.25F, options, {}).result, ApplyResult::applied);
        }
        EXPECT_EQ(free.values, values) << rule << ", rows of " << row_floats;
      }
    }
  }
}

TEST(LockFreeShard, NeitherReadsNorWritesOtherRows) {
  const ParameterTable table = test_table();
  Shared shared(table);
  const Rows rows = {5, 9};
  const std::vector<TouchedRows> touched = touch(table, rows);
  Floats gradient = test_numbers(static_cast<std::size_t>(table.size()), 2);
  const ParameterEntry& entry = table.at("rows");
  for (std::int64_t row = 0; row < kRows; ++row) {
    if (row != 5 && row != 9) {
      gradient[static_cast<std::size_t>(entry.range.begin + 3 * row)] = std::numeric_limits<float>::quiet_NaN();
    }
  }
  const Floats before = shared.values;
  const UpdateReport report =
      shared.shard.apply({gradient, touched}, 1, {.rate = 0.1F, .weight_decay = 0.1F, .clip_norm = 1e6F}, shared.copy);
  EXPECT_EQ(report.result, ApplyResult::applied);
  EXPECT_TRUE(report.finite);
  for (std::int64_t i = entry.range.begin; i < entry.range.end; ++i) {
    const std::int64_t row = (i - entry.range.begin) / 3;
    EXPECT_EQ(shared.values[static_cast<std::size_t>(i)] == before[static_cast<std::size_t>(i)], row != 5 && row != 9);
  }
  shared.shard.read_rows(touched, shared.copy);
  for (const std::int32_t row : {4, 5, 9}) {
    const auto at = static_cast<std::size_t>(touched[0].offset(row));
    EXPECT_EQ(shared.copy[at] == shared.values[at], row != 4);
  }
}

TEST(LockFreeShard, LeavesTheDensePartOfTheCopyAsItLeftTheShard) {
  const ParameterTable table = test_table();
  Shared shared(table);
  const Floats gradient = test_numbers(static_cast<std::size_t>(table.size()), 2);
  EXPECT_TRUE(shared.shard.apply({gradient, {}}, 1, {.rate = 0.1F}, shared.copy).finite);
  for (const char* name : {"dense", "mean"}) {
    const Range range = table.at(name).range;
    EXPECT_TRUE(std::equal(shared.values.begin() + range.begin, shared.values.begin() + range.end,
                           shared.copy.begin() + range.begin));
  }
}

TEST(LockFreeShard, LeavesFrozenParametersAlone) {
  ParameterTable table = test_table();
  table.freeze("rows");
  table.freeze("dense");
  Shared shared(table);
  const Rows rows = {1};
  const std::vector<TouchedRows> touched = touch(table, rows);
  const Floats before = shared.values, gradient = test_numbers(static_cast<std::size_t>(table.size()), 2);
  EXPECT_TRUE(shared.shard.apply({gradient, touched}, 1, {.rate = 0.1F}, shared.copy).finite);
  for (const char* name : {"rows", "dense", "single"}) {
    const Range range = table.at(name).range;
    EXPECT_EQ(std::equal(before.begin() + range.begin, before.begin() + range.end, shared.values.begin() + range.begin),
              std::string(name) != "single");
  }
}

TEST(LockFreeShard, ShortensAGradientByItsTouchedRowsAndDropsOneThatIsNotFinite) {
  const ParameterTable table = test_table();
  Shared shared(table);
  Floats gradient(shared.values.size(), 0.0F);
  const Rows rows = {2};
  const std::vector<TouchedRows> touched = touch(table, rows);
  const auto at = static_cast<std::size_t>(touched[0].offset(2));
  gradient[at] = 4;
  gradient[at + 3] = 100;  // of row 3
  const float before = shared.values[at];
  const UpdateReport report = shared.shard.apply({gradient, touched}, 0.5F, {.rate = 1, .clip_norm = 1}, shared.copy);
  EXPECT_DOUBLE_EQ(report.gradient_norm.value(), 2);
  EXPECT_FLOAT_EQ(shared.values[at], before - 1);

  gradient[at] = std::numeric_limits<float>::infinity();
  const Floats kept = shared.values;
  EXPECT_EQ(shared.shard.apply({gradient, touched}, 1, {.rate = 1, .drop_nonfinite = true}, shared.copy).result,
            ApplyResult::dropped);
  EXPECT_EQ(shared.values, kept);
  EXPECT_FALSE(shared.shard.apply({gradient, touched}, 1, {.rate = 1}, shared.copy).finite);
}

TEST(LockFreeShard, ThreadsOnDifferentRowsLoseNothing) {
  const ParameterTable table = test_table();
  Shared shared(table);
  std::fill(shared.values.begin(), shared.values.end(), 0.0F);
  constexpr int kUpdates = 200;
  {
    std::vector<std::jthread> threads;
    for (std::int32_t thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&, thread] {
        Floats gradient(shared.values.size(), -1.0F), copy(shared.values.size());
        for (std::int32_t i = 0; i < kUpdates; ++i) {
          const Rows rows = {thread, thread + 4 * (1 + i % 100)};
          const std::vector<TouchedRows> touched = touch(table, rows);
          shared.shard.read_dense(copy);
          shared.shard.read_rows(touched, copy);
          EXPECT_TRUE(shared.shard.apply({gradient, touched}, 1, {.rate = 1}, copy).finite);
        }
      });
    }
  }
  for (std::int32_t row = 0; row < 404; ++row) {
    const float wanted = row < 4 ? kUpdates : kUpdates / 100;
    EXPECT_EQ(shared.values[static_cast<std::size_t>(table.at("rows").range.begin + 3 * row)], wanted) << row;
    EXPECT_EQ(shared.values[static_cast<std::size_t>(table.at("single").range.begin + row)], wanted) << row;
  }
  // All wrote the dense part: an update may be lost, but each number is one that updates give.
  const float dense = shared.values[0];
  EXPECT_GE(dense, 1.0F);
  EXPECT_LE(dense, 4.0F * kUpdates);
  EXPECT_EQ(dense, std::round(dense));
}

TEST(LockFreeShard, OnlySomeRulesBearRaces) {
  for (const std::string_view name : rule_names()) {
    EXPECT_EQ(LockFreeShard::bears_races(*make_rule({.name = std::string(name)})), name == "sgd" || name == "adagrad");
  }
  EXPECT_FALSE(LockFreeShard::bears_races(*make_rule({.name = "sgd", .momentum = 0.9})));
}

}  // namespace
}  // namespace distbelief
