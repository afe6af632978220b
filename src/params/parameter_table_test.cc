#include "params/parameter_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/parallel.h"

namespace distbelief {
namespace {

ParameterSpec weight(Shape shape, Initializer init = Initializer::normal(1)) {
  ParameterSpec spec;
  spec.shape = std::move(shape);
  spec.init = init;
  return spec;
}

ParameterSpec statistic(Shape shape) {
  ParameterSpec spec = weight(std::move(shape), Initializer::ones());
  spec.kind = ParameterKind::averaged;
  return spec;
}

ParameterTable small_table() {
  ParameterTable table;
  table.add("conv1.weight", weight({3, 7}));
  table.add("norm.mean", statistic({5}));
  table.add("norm.variance", statistic({17}));
  table.add("dense.weight", weight({16}));
  table.add("dense.bias", weight({1}));
  return table;
}

TEST(ParameterTable, PutsAveragedParametersBehindOptimizedOnes) {
  const ParameterTable table = small_table();
  EXPECT_EQ(table.at("conv1.weight").range, (Range{0, 21}));
  EXPECT_EQ(table.at("dense.weight").range, (Range{32, 48}));
  EXPECT_EQ(table.at("dense.bias").range, (Range{48, 49}));
  EXPECT_EQ(table.optimized_size(), 64);
  EXPECT_EQ(table.at("norm.mean").range, (Range{64, 69}));
  EXPECT_EQ(table.at("norm.variance").range, (Range{80, 97}));
  EXPECT_EQ(table.size(), 112);
  EXPECT_EQ(table.parameter_count(), 38);
  EXPECT_EQ(table.entries()[1].name, "norm.mean");
}

TEST(ParameterTable, NamesTheNearestParameterWhenOneIsMissing) {
  const ParameterTable table = small_table();
  EXPECT_EQ(table.find("conv1.weigth"), nullptr);
  try {
    table.at("conv1.weigth");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("'conv1.weight'"));
  }
}

TEST(ParameterTable, RefusesANameTwice) {
  ParameterTable table = small_table();
  EXPECT_THROW(table.add("dense.bias", weight({1})), InputError);
}

TEST(ParameterTable, FreezesWhatAPatternMatches) {
  ParameterTable table = small_table();
  EXPECT_EQ(table.freeze("dense.*"), 2);
  EXPECT_TRUE(table.at("dense.bias").frozen);
  EXPECT_FALSE(table.at("conv1.weight").frozen);
  EXPECT_THROW(table.freeze("lstm*"), InputError);
}

TEST(ParameterTable, PatternsMatchTheWholeName) {
  EXPECT_TRUE(matches_pattern("*", ""));
  EXPECT_TRUE(matches_pattern("a*c", "abcbc"));
  EXPECT_TRUE(matches_pattern("*.weight", "block1.conv2.weight"));
  EXPECT_TRUE(matches_pattern("conv?.weight", "conv1.weight"));
  EXPECT_FALSE(matches_pattern("conv?.weight", "conv10.weight"));
  EXPECT_FALSE(matches_pattern("conv", "conv1"));
  EXPECT_FALSE(matches_pattern("a*c", "abcb"));
  EXPECT_FALSE(matches_pattern("?", ""));
}

TEST(ParameterTable, AddingALayerChangesNoOthersBeginning) {
  const ParameterTable table = small_table();
  std::vector<float> values(static_cast<std::size_t>(table.size()), -1);
  table.initialize(7, values);

  ParameterTable longer;
  longer.add("new.weight", weight({100}));
  for (const ParameterEntry& entry : table.entries()) {
    longer.add(entry.name, entry.spec);
  }
  std::vector<float> more(static_cast<std::size_t>(longer.size()), -1);
  longer.initialize(7, more);
  for (const ParameterEntry& entry : table.entries()) {
    const Range there = longer.at(entry.name).range;
    for (std::int64_t i = 0; i < entry.range.size(); ++i) {
      EXPECT_EQ(values[static_cast<std::size_t>(entry.range.begin + i)],
                more[static_cast<std::size_t>(there.begin + i)])
          << entry.name << " " << i;
    }
  }
}

TEST(ParameterTable, GapsBeginAsZeros) {
  const ParameterTable table = small_table();
  std::vector<float> values(static_cast<std::size_t>(table.size()), -1);
  table.initialize(7, values);
  for (const std::size_t gap : {21, 31, 49, 63, 69, 79, 97, 111}) {
    EXPECT_EQ(values[gap], 0) << gap;
  }
  EXPECT_EQ(values[64], 1);
}

TEST(ParameterTable, InitialValuesHaveTheirDistributionOnAnyNumberOfThreads) {
  constexpr std::int64_t kCount = 100003;
  ParameterTable table;
  table.add("normal", weight({kCount}, Initializer::normal(0.5F)));
  table.add("uniform", weight({kCount}, Initializer::uniform(3)));
  std::vector<float> values(static_cast<std::size_t>(table.size()));
  const int before = thread_count();
  set_thread_count(1);
  table.initialize(3, values);
  for (const ParameterEntry& entry : table.entries()) {
    double sum = 0;
    double squares = 0;
    for (std::int64_t i = entry.range.begin; i < entry.range.end; ++i) {
      const double value = values[static_cast<std::size_t>(i)];
      sum += value;
      squares += value * value;
    }
    const double variance = entry.name == "normal" ? 0.25 : 3.0;
    EXPECT_NEAR(sum / kCount, 0, 4 * std::sqrt(variance / kCount)) << entry.name;
    EXPECT_NEAR(squares / kCount, variance, 0.02 * variance) << entry.name;
  }
  std::vector<float> again(values.size());
  set_thread_count(3);
  table.initialize(3, again);
  set_thread_count(before);
  EXPECT_EQ(values, again);
}

TEST(ParameterTable, DigestTellsNamesAndShapesApart) {
  const ParameterTable table = small_table();
  EXPECT_EQ(table.digest(), small_table().digest());
  ParameterTable renamed;
  renamed.add("conv2.weight", weight({3, 7}));
  ParameterTable reshaped;
  reshaped.add("conv2.weight", weight({7, 3}));
  EXPECT_NE(renamed.digest(), reshaped.digest());
  EXPECT_NE(renamed.digest(), table.digest());
}

}  // namespace
}  // namespace distbelief
