#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "base/random.h"
#include "params/parameter_shard.h"
#include "params/test_numbers.h"

namespace distbelief {
namespace {

using Floats = std::vector<float>;

/// Rows and what has none, some frozen, and, if asked for, some that is averaged; of several chunks, with gaps.
ParameterTable mixed_table(bool averaged) {
  ParameterTable table;
  table.add("rows.weight", {.name = "weight", .shape = {1501, 3}, .init = {}, .row_floats = 3});
  table.add("rows.bias", {.name = "bias", .shape = {5}, .init = {}, .decays = false});
  table.add("frozen.weight", {.name = "weight", .shape = {40, 2}, .init = {}, .row_floats = 2});
  table.add("tail.weight", {.name = "weight", .shape = {700}, .init = {}});
  if (averaged) {
    table.add("norm.mean", {.name = "mean", .shape = {30}, .init = {}, .kind = ParameterKind::averaged});
  }
  table.freeze("frozen.*");
  return table;
}

/// A gradient that is 0 but for runs, told in both ways. `origin` is what its first place is called.
struct TwoWays {
  TwoWays(std::int64_t size, std::uint64_t stream, std::uint32_t origin) : whole(static_cast<std::size_t>(size)) {
    const Floats all = test_numbers(static_cast<std::size_t>(size), stream);
    const CounterRandom random(11, RandomUse::generate);
    std::uint64_t at = 0;
    for (std::uint64_t i = 0; at < whole.size(); ++i) {
      // Mostly rows of few floats, now and then a run over several chunks and parameters.
      const bool is_long = i % 29 == 3;
      const auto count = static_cast<std::uint64_t>(is_long ? 1300 : 1 + std::abs(random.normal(stream, 2 * i)) * 2);
      const std::uint64_t end = std::min<std::uint64_t>(at + count, whole.size());
      runs.push_back({static_cast<std::uint32_t>(at) + origin, static_cast<std::uint32_t>(end - at)});
      for (; at < end; ++at) {
        whole[at] = all[at];
        floats.push_back(all[at]);
      }
      at += static_cast<std::uint64_t>(std::abs(random.normal(stream, 2 * i + 1)) * 60);
    }
    gradient = {.places = {.runs = runs, .origin = origin}, .floats = floats};
  }

  Floats whole;
  std::vector<FloatRun> runs;
  Floats floats;
  GradientRuns gradient;
};

/// All of a shard's numbers as text that shows every bit.
class Written : public StateVisitor {
 public:
  void floats(std::string_view name, std::span<float> values) override {
    text += name;
    text.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  }
  void number(std::string_view name, std::uint64_t& value) override { text += fmt::format("{} {}\n", name, value); }
  void numbers(std::string_view name, std::vector<std::uint64_t>& values) override {
    for (std::uint64_t& value : values) {
      number(name, value);
    }
  }
  std::string text;
};

struct Shard {
  Shard(const ParameterTable& table, const UpdateRule& rule)
      : values(test_numbers(static_cast<std::size_t>(table.size()), 1)),
        shard(table, table.everything(), rule, values) {}
  std::string state() {
    Written written;
    shard.visit_values_and_state(written);
    return written.text;
  }
  Floats values;
  ParameterShard shard;
};

struct Case {
  std::string name;
  UpdateOptions options;
  bool averaged = false;
};

TEST(ParameterShardRuns, LeaveTheBitsOfAGradientWithZerosElsewhereForEveryRuleAndOption) {
  constexpr std::uint32_t kOrigin = 1000;
  const std::vector<Case> cases = {
      {"plain", {.rate = 0.1F}},
      {"decay", {.rate = 0.1F, .weight_decay = 0.01F}},
      {"clipped elements", {.rate = 0.1F, .clip_value = 0.3F}},
      {"clipped length", {.rate = 0.1F, .clip_norm = 0.5F}},
      {"measured", {.rate = 0.1F, .drop_nonfinite = true}},
      {"gathered", {.rate = 0.1F, .gather = 2}},
      {"aware of staleness", {.rate = 0.1F, .staleness_rate = true}},
      {"averaged statistics", {.rate = 0.1F}, true},
  };
  for (const std::string_view name : rule_names()) {
    const std::unique_ptr<UpdateRule> rule = make_rule({.name = std::string(name)});
    for (const Case& one : cases) {
      SCOPED_TRACE(fmt::format("{}, {}", name, one.name));
      const ParameterTable table = mixed_table(one.averaged);
      Shard whole(table, *rule), sparse(table, *rule);
      const std::string before = whole.state();
      for (std::uint64_t seq = 0; seq < 5; ++seq) {
        const TwoWays told(table.size(), 20 + seq, kOrigin);
        const std::span<const float> part = told.whole;
        const UpdateReport a = whole.shard.apply({3, seq}, std::span(&part, 1), 0.25F, one.options, Version{0});
        const UpdateReport b = sparse.shard.apply({3, seq}, told.gradient, 0.25F, one.options, Version{0});
        EXPECT_EQ(a.result, b.result);
        EXPECT_EQ(a.staleness, b.staleness);
        EXPECT_EQ(a.version, b.version);
        EXPECT_EQ(a.finite, b.finite);
        EXPECT_EQ(a.gradient_norm, b.gradient_norm);
        ASSERT_TRUE(whole.state() == sparse.state()) << "after push " << seq;
      }
      EXPECT_TRUE(sparse.state() != before);
    }
  }
}

TEST(ParameterShardRuns, EnterOnceAlsoWhereNoRunIs) {
  const ParameterTable table = mixed_table(false);
  const std::unique_ptr<UpdateRule> rule = make_rule({.name = "sgd"});
  Shard one(table, *rule);
  const Floats before = one.values;
  EXPECT_EQ(one.shard.apply({3, 0}, GradientRuns{}, 1, {.rate = 1}, {}).result, ApplyResult::applied);
  EXPECT_EQ(one.shard.apply({3, 0}, GradientRuns{}, 1, {.rate = 1}, {}).result, ApplyResult::duplicate);
  EXPECT_EQ(one.shard.apply({3, 2}, GradientRuns{}, 1, {.rate = 1}, {}).result, ApplyResult::stale);
  EXPECT_EQ(one.shard.next_seq(3), 1U);
  EXPECT_EQ(one.shard.version(), Version{1});
  EXPECT_EQ(one.values, before);
}

TEST(ParameterShardRuns, SayWhenTheyLeaveANumberThatIsNotFinite) {
  const ParameterTable table = mixed_table(false);
  const std::unique_ptr<UpdateRule> rule = make_rule({.name = "adagrad"});
  Shard one(table, *rule);
  const FloatRun run = {4, 1};
  const float bad = std::numeric_limits<float>::infinity();
  const GradientRuns gradient = {.places = {.runs = {&run, 1}}, .floats = {&bad, 1}};
  const UpdateReport report = one.shard.apply({3, 0}, gradient, 1, {.rate = 1}, {});
  EXPECT_EQ(report.result, ApplyResult::applied);
  EXPECT_FALSE(report.finite);
}

TEST(ParameterShardRuns, AreReadOneAfterTheOther) {
  const ParameterTable table = mixed_table(true);
  const std::unique_ptr<UpdateRule> rule = make_rule({.name = "sgd"});
  Shard one(table, *rule);
  const TwoWays told(table.size(), 3, 70);
  Floats expected, out(told.floats.size());
  for (const FloatRun& run : told.runs) {
    for (std::uint64_t at = run.begin; at < run.end(); ++at) {
      expected.push_back(one.values[at - 70]);
    }
  }
  EXPECT_EQ(one.shard.read({.runs = told.runs, .origin = 70}, out), Version{0});
  EXPECT_EQ(out, expected);
}

}  // namespace
}  // namespace distbelief
