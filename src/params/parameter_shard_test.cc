#include "params/parameter_shard.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <thread>

#include "base/parallel.h"
#include "base/random.h"
#include "params/state_keeper.h"
#include "params/test_numbers.h"

namespace distbelief {
namespace {

using Floats = std::vector<float>;

ParameterSpec spec_of(std::int64_t count) {
  ParameterSpec spec;
  spec.shape = Shape{count};
  return spec;
}

/// "a" decays, "b" does not, "mean" is averaged: at 0, 16 and 32.
ParameterTable abc_table() {
  ParameterTable table;
  table.add("a", spec_of(2));
  ParameterSpec b = spec_of(2);
  b.decays = false;
  table.add("b", b);
  ParameterSpec mean = spec_of(2);
  mean.kind = ParameterKind::averaged;
  mean.average_rate = 0.25F;
  table.add("mean", mean);
  return table;
}

/// A shard of everything in a table, with its values.
struct Local {
  explicit Local(const ParameterTable& table, const RuleOptions& options = {})
      : rule(make_rule(options)),
        values(static_cast<std::size_t>(table.size()), 0.0F),
        shard(table, table.everything(), *rule, values) {}

  UpdateReport push(const Floats& gradient, const UpdateOptions& options, float scale = 1, PushId id = {}) {
    const std::span<const float> part = gradient;
    return shard.apply(id, {&part, 1}, scale, options, shard.version());
  }

  std::unique_ptr<UpdateRule> rule;
  Floats values;
  ParameterShard shard;
};

TEST(ParameterShard, APushOfSeveralUnitsEntersWholeOrNotAtAll) {
  Local local(abc_table());
  const Floats gradient(48, 1.0F);
  EXPECT_EQ(local.push(gradient, {.rate = 0.5F}, 1, {9, 0}).result, ApplyResult::applied);
  EXPECT_EQ(local.push(gradient, {.rate = 0.5F}, 1, {9, 1, 3}).result, ApplyResult::applied);
  EXPECT_EQ(local.push(gradient, {.rate = 0.5F}, 1, {9, 1, 3}).result, ApplyResult::duplicate);
  EXPECT_EQ(local.push(gradient, {.rate = 0.5F}, 1, {9, 2}).result, ApplyResult::duplicate);
  EXPECT_EQ(local.push(gradient, {.rate = 0.5F}, 1, {9, 3, 2}).result, ApplyResult::stale);  // unit 3 is there
  EXPECT_EQ(local.values[0], -1.0F);
  EXPECT_EQ(local.shard.pushes(), 4U);
}

TEST(ParameterShard, AppliesAPushOnce) {
  Local local(abc_table());
  const Floats gradient(48, 1.0F);
  EXPECT_EQ(local.push(gradient, {.rate = 0.5F}, 1, {9, 0}).result, ApplyResult::applied);
  EXPECT_EQ(local.values[0], -0.5F);
  EXPECT_EQ(local.push(gradient, {.rate = 0.5F}, 1, {9, 0}).result, ApplyResult::duplicate);
  EXPECT_EQ(local.values[0], -0.5F);
  EXPECT_EQ(local.push(gradient, {.rate = 0.5F}, 1, {9, 2}).result, ApplyResult::stale);
  EXPECT_EQ(local.values[0], -0.5F);
  EXPECT_EQ(local.push(gradient, {.rate = 0.5F}, 1, {9, 1}).result, ApplyResult::applied);
  EXPECT_EQ(local.push(gradient, {.rate = 0.5F}, 1, {10, 0}).result, ApplyResult::applied);
  EXPECT_EQ(local.values[0], -1.5F);
  EXPECT_EQ(local.shard.version(), Version{3});
  EXPECT_EQ(local.shard.next_seq(9), 2U);
  EXPECT_EQ(local.shard.next_seq(11), 0U);
}

TEST(ParameterShard, TakesPushesOfPrunedLeasesForDuplicates) {
  Local local(abc_table());
  const Floats gradient(48, 1.0F);
  EXPECT_EQ(local.push(gradient, {.rate = 1}, 1, {1, 0}).result, ApplyResult::applied);
  EXPECT_EQ(local.push(gradient, {.rate = 1}, 1, {2, 0}).result, ApplyResult::applied);
  local.shard.prune_leases(2);
  EXPECT_EQ(local.push(gradient, {.rate = 1}, 1, {1, 0}).result, ApplyResult::duplicate);
  EXPECT_EQ(local.push(gradient, {.rate = 1}, 1, {2, 1}).result, ApplyResult::applied);
}

TEST(ParameterShard, TellsHowStaleAPushWas) {
  Local local(abc_table());
  const Floats gradient(48, 1.0F);
  const std::span<const float> part = gradient;
  for (std::uint64_t seq = 0; seq < 3; ++seq) {
    EXPECT_EQ(local.shard.apply({0, seq}, {&part, 1}, 1, {.rate = 1}, Version{1}).staleness, seq > 1 ? seq - 1 : 0);
  }
}

/// Gradients of constants, which leave traces that are easy to add up.
Floats constant(const ParameterTable& table, float value) {
  return Floats(static_cast<std::size_t>(table.size()), value);
}

TEST(ParameterShard, UpdatesWithTheMeanOfGatheredPushes) {
  const ParameterTable table = abc_table();
  Local local(table);
  const UpdateOptions options = {.rate = 1, .gather = 3};
  EXPECT_EQ(local.push(constant(table, 1), options, 2, {1, 0}).version, Version{0});
  EXPECT_EQ(local.push(constant(table, 4), options, 1, {2, 0}).version, Version{0});
  EXPECT_EQ(local.push(constant(table, 4), options, 1, {2, 0}).result, ApplyResult::duplicate);
  EXPECT_EQ(local.values[0], 0);
  EXPECT_EQ(local.push(constant(table, 3), options, 1, {1, 1}).version, Version{1});
  EXPECT_FLOAT_EQ(local.values[0], -3);                                 // (2 x 1 + 4 + 3) / 3
  EXPECT_FLOAT_EQ(local.values[32], 0.25F * (1.0F + 4.0F + 3.0F) / 3);  // observed: the scale is the gradients'
  EXPECT_EQ(local.shard.pushes(), 3U);
  EXPECT_EQ(local.shard.next_seq(1), 2U);
}

TEST(ParameterShard, FlushesWhatIsGatheredWhenThatIsEnough) {
  const ParameterTable table = abc_table();
  Local local(table);
  const UpdateOptions options = {.rate = 1, .gather = 30};
  EXPECT_TRUE(local.shard.flush({.rate = 1}));
  (void)local.push(constant(table, 1), options, 1, {1, 0});
  (void)local.push(constant(table, 2), options, 1, {1, 1});
  EXPECT_TRUE(local.shard.flush({.rate = 1, .gather = 3}));
  EXPECT_EQ(local.shard.version(), Version{0});
  EXPECT_TRUE(local.shard.flush({.rate = 1}));
  EXPECT_EQ(local.shard.version(), Version{1});
  EXPECT_FLOAT_EQ(local.values[0], -1.5F);
}

TEST(ParameterShard, UpdatesAtOnceWithMoreThanEnoughWhenFewerAreAskedFor) {
  const ParameterTable table = abc_table();
  Local local(table);
  (void)local.push(constant(table, 1), {.rate = 1, .gather = 5}, 1, {1, 0});
  EXPECT_EQ(local.push(constant(table, 3), {.rate = 1, .gather = 1}, 1, {1, 1}).version, Version{1});
  EXPECT_FLOAT_EQ(local.values[0], -2);
}

TEST(ParameterShard, DividesTheRateByStaleness) {
  const ParameterTable table = abc_table();
  Local local(table);
  const UpdateOptions plain = {.rate = 1};
  for (std::uint64_t i = 0; i < 4; ++i) {
    (void)local.push(constant(table, 0), plain, 1, {1, i});
  }
  const UpdateOptions divided = {.rate = 1, .staleness_rate = true};
  const Floats ones = constant(table, 1);
  const std::span<const float> part = ones;
  EXPECT_EQ(local.shard.apply({2, 0}, {&part, 1}, 1, divided, Version{0}).staleness, 4U);
  EXPECT_FLOAT_EQ(local.values[0], -0.25F);
  (void)local.shard.apply({2, 1}, {&part, 1}, 1, divided, Version{5});  // fresh, as with a staleness of 1
  (void)local.shard.apply({2, 2}, {&part, 1}, 1, divided, Version{5});
  EXPECT_FLOAT_EQ(local.values[0], -2.25F);
}

TEST(ParameterShard, GathersPushesWithTheirOwnRates) {
  const ParameterTable table = abc_table();
  Local local(table);
  for (std::uint64_t i = 0; i < 4; ++i) {
    (void)local.push(constant(table, 0), {.rate = 1}, 1, {1, i});
  }
  const UpdateOptions options = {.rate = 1, .gather = 2, .staleness_rate = true};
  const Floats twos = constant(table, 2);
  const Floats eights = constant(table, 8);
  const std::span<const float> fresh = twos;
  const std::span<const float> old = eights;
  (void)local.shard.apply({2, 0}, {&fresh, 1}, 1, options, Version{4});
  (void)local.shard.apply({2, 1}, {&old, 1}, 1, options, Version{0});
  EXPECT_FLOAT_EQ(local.values[0], -(2.0F + 8.0F / 4) / 2);
}

TEST(ParameterShard, SumsPartsForOptimizedAndAveragesThemForAveraged) {
  Local local(abc_table());
  local.values[32] = 4;
  Floats one(48, 1.0F);
  Floats two(48, 2.0F);
  Floats three(48, 6.0F);
  const std::vector<std::span<const float>> parts = {one, two, three};
  EXPECT_EQ(local.shard.apply({}, parts, 0.5F, {.rate = 1, .clip_value = 4, .drop_nonfinite = true}, {}).result,
            ApplyResult::applied);
  EXPECT_EQ(local.values[0], -4.0F);                       // 0.5 × 9, limited to 4
  EXPECT_EQ(local.values[32], 4.0F + 0.25F * (3.0F - 4));  // no scale, no limit
}

TEST(ParameterShard, LeavesGapsAndFrozenParametersAlone) {
  ParameterTable table = abc_table();
  table.freeze("a");
  Local local(table);
  const UpdateReport report = local.push(Floats(48, 3.0F), {.rate = 1, .clip_norm = 100});
  EXPECT_DOUBLE_EQ(report.gradient_norm.value(), std::sqrt(18.0));  // of "b" alone
  for (std::size_t i = 0; i < 48; ++i) {
    const float expected = i == 16 || i == 17 ? -3.0F : i == 32 || i == 33 ? 0.75F : 0.0F;
    EXPECT_EQ(local.values[i], expected) << i;
  }
}

TEST(ParameterShard, DecaysOnlyWhatDecays) {
  Local local(abc_table());
  local.values[0] = 10;
  local.values[16] = 10;
  EXPECT_EQ(local.push(Floats(48, 0.0F), {.rate = 0.5F, .weight_decay = 0.25F}).result, ApplyResult::applied);
  EXPECT_EQ(local.values[0], 8.75F);
  EXPECT_EQ(local.values[16], 10);
}

TEST(ParameterShard, ClipsByNormThenByValue) {
  Floats gradient(48, 0.0F);
  gradient[0] = 6;
  gradient[16] = -8;
  gradient[32] = 1000;  // averaged: not part of the norm
  Local by_norm(abc_table());
  EXPECT_DOUBLE_EQ(by_norm.push(gradient, {.rate = 1, .clip_norm = 5}).gradient_norm.value(), 10);
  EXPECT_FLOAT_EQ(by_norm.values[0], -3);
  EXPECT_FLOAT_EQ(by_norm.values[16], 4);
  EXPECT_EQ(by_norm.values[32], 250);

  Local scaled(abc_table());  // the norm is of the scaled gradient
  EXPECT_DOUBLE_EQ(scaled.push(gradient, {.rate = 1, .clip_norm = 5}, 0.25F).gradient_norm.value(), 2.5);
  EXPECT_EQ(scaled.values[0], -1.5F);

  Local by_both(abc_table());
  EXPECT_EQ(by_both.push(gradient, {.rate = 1, .clip_norm = 5, .clip_value = 3.5F}).result, ApplyResult::applied);
  EXPECT_FLOAT_EQ(by_both.values[0], -3);
  EXPECT_FLOAT_EQ(by_both.values[16], 3.5F);
}

TEST(ParameterShard, DropsWhatIsNotFiniteWhenAsked) {
  Floats gradient(48, 1.0F);
  gradient[17] = std::numeric_limits<float>::infinity();
  Local local(abc_table());
  const UpdateReport report = local.push(gradient, {.rate = 1, .drop_nonfinite = true});
  EXPECT_EQ(report.result, ApplyResult::dropped);
  EXPECT_FALSE(std::isfinite(report.gradient_norm.value()));
  EXPECT_EQ(local.values, Floats(48, 0.0F));
  EXPECT_EQ(local.shard.version(), Version{0});
  EXPECT_EQ(local.shard.next_seq(0), 1U);
}

TEST(ParameterShard, ClippingByValueKeepsNanVisible) {
  Floats gradient(48, std::numeric_limits<float>::quiet_NaN());
  Local local(abc_table());
  const UpdateReport report = local.push(gradient, {.rate = 1, .clip_value = 1});
  EXPECT_EQ(report.result, ApplyResult::applied);
  EXPECT_FALSE(report.finite);
  EXPECT_TRUE(std::isnan(local.values[0]));
}

TEST(ParameterShard, TellsWhenAnyOfItsValuesIsNoLongerFinite) {
  ParameterTable table;
  table.add("a", spec_of(9001));
  ParameterSpec statistics = spec_of(7);
  statistics.kind = ParameterKind::averaged;
  table.add("statistics", statistics);
  for (const std::string_view rule : rule_names()) {
    for (const std::size_t wrong : {std::size_t{0}, std::size_t{4097}, std::size_t{9000}, std::size_t{9008 + 3}}) {
      for (const float value : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
        Local local(table, {.name = std::string(rule)});
        Floats gradient(static_cast<std::size_t>(table.size()), 1.0F);
        EXPECT_TRUE(local.push(gradient, {.rate = 1}).finite) << rule;
        gradient[wrong] = value;
        EXPECT_FALSE(local.push(gradient, {.rate = 1}, 1, {0, 1}).finite) << rule << " at " << wrong;
      }
    }
  }
}

/// Entries of odd sizes around the size of a chunk.
ParameterTable large_table() {
  ParameterTable table;
  for (const std::int64_t count : {5, 20000, 1, 8192, 333, 40001}) {
    ParameterSpec spec = spec_of(count);
    spec.decays = count > 5;
    table.add(fmt::format("p{}", count), spec);
  }
  ParameterSpec mean = spec_of(9001);
  mean.kind = ParameterKind::averaged;
  table.add("mean", mean);
  return table;
}

TEST(ParameterShard, GivesTheSameBitsOnAnyNumberOfThreads) {
  const ParameterTable table = large_table();
  const auto count = static_cast<std::size_t>(table.size());
  const Floats first = test_numbers(count, 1);
  const Floats second = test_numbers(count, 2);
  const std::vector<std::span<const float>> parts = {first, second};
  std::vector<Floats> results;
  const int before = thread_count();
  for (const int threads : {1, 2, 3}) {
    set_thread_count(threads);
    Local local(table, {.name = "momentum"});
    for (std::uint64_t seq = 0; seq < 3; ++seq) {
      EXPECT_EQ(
          local.shard.apply({0, seq}, parts, 0.5F, {.rate = 0.1F, .weight_decay = 0.01F, .clip_norm = 1}, {}).result,
          ApplyResult::applied);
    }
    results.push_back(local.values);
  }
  set_thread_count(before);
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

TEST(ParameterShard, ShardsOfAnyCutGiveWhatOneShardGives) {
  const ParameterTable table = large_table();
  const auto count = static_cast<std::size_t>(table.size());
  const Floats gradient = test_numbers(count, 3);
  const Floats begin = test_numbers(count, 4);
  const UpdateOptions options = {.rate = 0.1F, .weight_decay = 0.01F};
  for (const std::string_view name : rule_names()) {
    Local whole(table, {.name = std::string(name)});
    whole.values = begin;
    Floats values = begin;
    const std::vector<std::int64_t> cuts = {0, 3, 18, 8200, 20001, 20040, 65537, table.size()};
    std::vector<std::unique_ptr<ParameterShard>> shards;
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      const Range range = {cuts[i], cuts[i + 1]};
      shards.push_back(std::make_unique<ParameterShard>(
          table, range, *whole.rule,
          std::span(values).subspan(static_cast<std::size_t>(range.begin), static_cast<std::size_t>(range.size()))));
    }
    for (std::uint64_t seq = 0; seq < 3; ++seq) {
      EXPECT_EQ(whole.push(gradient, options, 0.5F, {0, seq}).result, ApplyResult::applied);
      for (const auto& shard : shards) {
        const std::span<const float> part = std::span(gradient).subspan(
            static_cast<std::size_t>(shard->range().begin), static_cast<std::size_t>(shard->range().size()));
        EXPECT_EQ(shard->apply({0, seq}, {&part, 1}, 0.5F, options, {}).result, ApplyResult::applied);
      }
    }
    EXPECT_EQ(values, whole.values) << name;
  }
}

TEST(ParameterShard, ReadsOneVersionNeverAMix) {
  ParameterTable table;
  table.add("a", spec_of(50000));
  Local local(table);
  const Floats gradient(static_cast<std::size_t>(table.size()), -1.0F);
  constexpr std::uint64_t kUpdates = 50;
  std::jthread writer([&] {
    for (std::uint64_t seq = 0; seq < kUpdates; ++seq) {
      EXPECT_EQ(local.push(gradient, {.rate = 1}, 1, {0, seq}).result, ApplyResult::applied);
    }
  });
  Floats seen(gradient.size());
  Version version;
  while (version < Version{kUpdates}) {
    version = local.shard.read(seen);
    ASSERT_EQ(std::count(seen.begin(), seen.begin() + 50000, static_cast<float>(version.value)), 50000);
  }
}

TEST(ParameterShard, GoesOnFromItsVisitedStateBitForBit) {
  for (const std::string_view name : rule_names()) {
    Local local(abc_table(), {.name = std::string(name)});
    local.values[1] = 0.5F;
    const Floats gradient = test_numbers(48, 6);
    EXPECT_EQ(local.push(gradient, {.rate = 0.1F}, 1, {4, 0}).result, ApplyResult::applied);
    local.shard.prune_leases(3);
    EXPECT_EQ(local.push(gradient, {.rate = 0.1F, .gather = 2}, 1, {5, 0}).version, Version{1});  // only gathered
    StateKeeper memory;
    local.shard.visit_state(memory);

    Local resumed(abc_table(), {.name = std::string(name)});
    resumed.values = local.values;
    memory.gives_back = true;
    resumed.shard.visit_state(memory);
    EXPECT_EQ(resumed.shard.version(), Version{1});
    for (Local* one : {&local, &resumed}) {
      EXPECT_EQ(one->push(gradient, {.rate = 0.1F}, 1, {2, 0}).result, ApplyResult::duplicate);
      EXPECT_EQ(one->push(gradient, {.rate = 0.1F}, 1, {4, 0}).result, ApplyResult::duplicate);
      EXPECT_EQ(one->push(test_numbers(48, 7), {.rate = 0.1F, .gather = 2}, 1, {4, 1}).version, Version{2});
    }
    EXPECT_EQ(resumed.values, local.values) << name;
  }
}

}  // namespace
}  // namespace distbelief
