#include "train/whole_state.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"
#include "server/parameter_server.h"
#include "server/placement.h"

namespace distbelief {
namespace {

constexpr float kStateRate = 0.5F;

ParameterSpec spec(std::int64_t rows, std::int64_t columns, ParameterKind kind = ParameterKind::optimized) {
  return {.name = "", .shape = Shape{rows, columns}, .init = Initializer::normal(1), .kind = kind};
}

/// 40 x 150 weights, a bias and a statistic.
ParameterTable whole_table() {
  ParameterTable table;
  table.add("weight", spec(40, 150));
  table.add("bias", spec(1, 40));
  table.add("mean", spec(1, 40, ParameterKind::averaged));
  return table;
}

/// Half of the weights' rows; each half has a copy of the bias, and one the statistic.
ParameterTable half_table(bool second) {
  ParameterTable table;
  ParameterSpec weight = spec(20, 150);
  weight.part_axis = 0;
  weight.part = {.begin = second ? 20 : 0, .end = second ? 40 : 20, .whole = 40};
  table.add("weight", weight);
  table.add("bias", spec(1, 40));
  if (second) {
    table.add("mean", spec(1, 40, ParameterKind::averaged));
  }
  return table;
}

std::vector<float> some_floats(const ParameterTable& table, std::uint64_t seed) {
  std::vector<float> floats(static_cast<std::size_t>(table.size()));
  table.initialize(seed, floats);
  return floats;
}

UpdateOptions rate() { return {.rate = kStateRate}; }

/// The states of servers that begin with `values` and got these pushes.
std::vector<std::string> states_of(const ParameterTable& table, int servers, const UpdateRule& rule,
                                   std::span<const float> values, const std::vector<std::vector<float>>& pushes,
                                   int gather = 1) {
  const BlockMap map(table, servers);
  std::vector<std::uint64_t> ids(static_cast<std::size_t>(servers));
  std::iota(ids.begin(), ids.end(), 0);
  const Placement placement(map, ids);
  std::vector<std::string> states;
  for (int i = 0; i < servers; ++i) {
    ParameterServer server(table, map, placement.blocks_of(i), rule, values, {.update = [gather](std::uint64_t, int) {
                             return UpdateOptions{.rate = kStateRate, .gather = gather};
                           }});
    for (std::size_t push = 0; push < pushes.size(); ++push) {
      std::vector<float> own;
      for (const int block : placement.blocks_of(i)) {
        const Range range = map.blocks()[static_cast<std::size_t>(block)].range;
        own.insert(own.end(), pushes[push].begin() + range.begin, pushes[push].begin() + range.end);
      }
      RequestHead head = {.kind = RequestHead::Kind::push, .push = {1, push}};
      head.scale = 1;
      const std::vector<std::uint64_t> seen(server.blocks(), push);
      EXPECT_EQ(server.push(head, seen, own).status, ReplyHead::Status::done);
    }
    states.push_back(server.save().value());
  }
  return states;
}

/// What one shard makes of the same.
WholeState expected_of(const ParameterTable& table, const UpdateRule& rule, std::vector<float> values,
                       const std::vector<std::vector<float>>& pushes) {
  ParameterShard shard(table, table.everything(), rule, values);
  for (std::size_t push = 0; push < pushes.size(); ++push) {
    const std::span<const float> part = pushes[push];
    EXPECT_EQ(shard.apply({1, push}, std::span(&part, 1), 1, rate(), Version{push}).result, ApplyResult::applied);
  }
  WholeState state = {.values = values};
  for (int slot = 0; slot < rule.slots(); ++slot) {
    state.slots[std::string(rule.slot_name(slot))].resize(values.size());
  }
  class Reader : public StateVisitor {
   public:
    explicit Reader(WholeState& state) : state_(state) {}
    void floats(std::string_view name, std::span<float> shown) override {
      state_.slots[std::string(name)].assign(shown.begin(), shown.end());
    }
    void number(std::string_view name, std::uint64_t& value) override {
      state_.updates = name == "updates" ? value : state_.updates;
    }
    void numbers(std::string_view /*name*/, std::vector<std::uint64_t>& /*values*/) override {}

   private:
    WholeState& state_;
  } reader(state);
  shard.visit_state(reader);
  return state;
}

void expect_same(const WholeState& one, const WholeState& other) {
  EXPECT_EQ(one.values, other.values);
  EXPECT_EQ(one.slots, other.slots);
  EXPECT_EQ(one.updates, other.updates);
}

TEST(WholeState, IsTheSameWhateverTheNumberOfServers) {
  const ParameterTable table = whole_table();
  const PartRuns whole(table, {});
  for (const char* name : {"sgd", "momentum", "adagrad", "adam"}) {
    const std::unique_ptr<UpdateRule> rule = make_rule({.name = name});
    const std::vector<float> values = some_floats(table, 1);
    const std::vector<std::vector<float>> pushes = {some_floats(table, 2), some_floats(table, 3)};
    const WholeState expected = expected_of(table, *rule, values, pushes);
    for (const int servers : {1, 2, 5}) {
      expect_same(whole_state_of(states_of(table, servers, *rule, values, pushes), "state", whole, *rule,
                                 [](std::uint64_t) { return rate(); }),
                  expected);
    }
  }
}

TEST(WholeState, PartsOfANetworkBecomeOneAndTheOtherWayRound) {
  const ParameterTable table = whole_table();
  const ParameterTable first = half_table(false);
  const ParameterTable second = half_table(true);
  const PartRuns whole(table, {});
  const PartRuns halves(table, {&first, &second});
  const std::unique_ptr<UpdateRule> rule = make_rule({.name = "adam"});
  const WholeState expected = expected_of(table, *rule, some_floats(table, 1), {some_floats(table, 2)});
  std::vector<std::string> states;
  for (std::size_t part = 0; part < 2; ++part) {
    const ParameterTable& own = halves.table(part);
    const WholeState values = part_of_state({.values = some_floats(table, 1)}, halves, part);
    const WholeState push = part_of_state({.values = some_floats(table, 2)}, halves, part);
    std::ranges::move(states_of(own, 3, *rule, values.values, {push.values}), std::back_inserter(states));
  }
  expect_same(whole_state_of(states, "state", halves, *rule, [](std::uint64_t) { return rate(); }), expected);
  EXPECT_THROW((void)whole_state_of(states, "state", whole, *rule, [](std::uint64_t) { return rate(); }), FileError);
  states.pop_back();
  EXPECT_THROW((void)whole_state_of(states, "state", halves, *rule, [](std::uint64_t) { return rate(); }), FileError);
}

TEST(WholeState, WhatWasGatheredBecomesAnUpdate) {
  const ParameterTable table = whole_table();
  const std::unique_ptr<UpdateRule> rule = make_rule({.name = "sgd"});
  const std::vector<float> values = some_floats(table, 1);
  const std::vector<float> push = some_floats(table, 2);
  const WholeState state = whole_state_of(states_of(table, 2, *rule, values, {push}, 3), "state", PartRuns(table, {}),
                                          *rule, [](std::uint64_t) { return rate(); });
  EXPECT_EQ(state.values, expected_of(table, *rule, values, {push}).values);
}

TEST(WholeState, FillsAShardOfAnyRangeAndLeavesWhatItDoesNotKnow) {
  const ParameterTable table = whole_table();
  const std::unique_ptr<UpdateRule> rule = make_rule({.name = "momentum"});
  const WholeState state = expected_of(table, *rule, some_floats(table, 1), {some_floats(table, 2)});
  std::vector<float> values(64);
  ParameterShard shard(table, {1600, 1664}, *rule, values);
  StateFiller filler(state, 1600);
  shard.visit_state(filler);
  std::vector<float> momentum;
  class Reader : public StateVisitor {
   public:
    explicit Reader(std::vector<float>& floats) : floats_(floats) {}
    void floats(std::string_view /*name*/, std::span<float> shown) override {
      floats_.assign(shown.begin(), shown.end());
    }
    void number(std::string_view name, std::uint64_t& value) override {
      EXPECT_EQ(value, name == "updates" ? 1U : 0U) << name;
    }
    void numbers(std::string_view /*name*/, std::vector<std::uint64_t>& numbers) override {
      EXPECT_TRUE(numbers.empty());
    }

   private:
    std::vector<float>& floats_;
  } reader(momentum);
  shard.visit_state(reader);
  EXPECT_TRUE(std::ranges::equal(momentum, std::span(state.slots.at("momentum")).subspan(1600, 64)));
}

}  // namespace
}  // namespace distbelief
