#include "params/rules/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "base/error.h"
#include "base/random.h"

namespace distbelief {
namespace {

using Floats = std::vector<float>;

/// Values with the rule's slots, updated without a shard.
struct State {
  State(const UpdateRule& rule, Floats begin) : values(std::move(begin)) {
    for (int slot = 0; slot < rule.slots(); ++slot) {
      slots.emplace_back(values.size(), rule.initial_slot_value(slot));
    }
  }

  void update(const UpdateRule& rule, const UpdateStep& step, std::span<const float> gradient, std::size_t begin,
              std::size_t end) {
    std::vector<float*> places;
    for (Floats& slot : slots) {
      places.push_back(slot.data() + begin);
    }
    rule.apply(step, std::span(values).subspan(begin, end - begin), gradient.subspan(begin, end - begin), places);
  }

  Floats values;
  std::vector<Floats> slots;
};

struct RuleCase {
  std::string title;
  RuleOptions options;
  float weight_decay;
  std::array<float, 4> expected;
};

class RuleTest : public testing::TestWithParam<RuleCase> {};

/// Expected: torch.optim of PyTorch 1.13, rate 0.1, from the same values with the same gradients.
INSTANTIATE_TEST_SUITE_P(
    AsInPyTorch, RuleTest,
    testing::Values(
        RuleCase{"sgd", {}, 0, {0.520000041F, -1.11000001F, 1.93999994F, 0.000999999931F}},
        RuleCase{"sgd_decay", {}, 0.01F, {0.518561482F, -1.10699296F, 1.93400598F, 0.00100099994F}},
        RuleCase{"sgd_with_momentum",
                 {.name = "sgd", .momentum = 0.9},
                 0.01F,
                 {0.464175373F, -1.11522079F, 1.93154359F, 0.00010100002F}},
        RuleCase{"momentum", {.name = "momentum"}, 0.01F, {0.464175373F, -1.11522079F, 1.93154359F, 0.00010100002F}},
        RuleCase{"momentum_dampened",
                 {.name = "momentum", .dampening = 0.3},
                 0.01F,
                 {0.466377765F, -1.06359184F, 1.92607665F, 7.04900012e-05F}},
        RuleCase{"nesterov", {.name = "nesterov"}, 0.01F, {0.486439764F, -1.21071029F, 1.87245202F, 0.00109361031F}},
        RuleCase{"sgd_with_nesterov",
                 {.name = "sgd", .momentum = 0.9, .nesterov = true},
                 0.01F,
                 {0.486439764F, -1.21071029F, 1.87245202F, 0.00109361031F}},
        RuleCase{"adagrad", {.name = "adagrad"}, 0.01F, {0.389005899F, -1.07479346F, 1.90648067F, -0.00971396267F}},
        RuleCase{"adagrad_begun",
                 {.name = "adagrad", .epsilon = 1e-3, .initial_accumulator = 0.5},
                 0.01F,
                 {0.500673234F, -1.09335661F, 1.94984674F, 0.00141293963F}},
        RuleCase{"rmsprop", {.name = "rmsprop"}, 0.01F, {-0.597546518F, -1.7488904F, 1.07081556F, -0.0508352518F}},
        RuleCase{"rmsprop_momentum",
                 {.name = "rmsprop", .momentum = 0.9, .rho = 0.8},
                 0.01F,
                 {-0.321939647F, -0.983136535F, 1.58630455F, -0.217399225F}},
        RuleCase{"adam", {.name = "adam"}, 0.01F, {0.330653638F, -1.0132339F, 1.89592171F, -0.04183238F}},
        RuleCase{"adam_short_memory",
                 {.name = "adam", .beta1 = 0.5, .beta2 = 0.7, .epsilon = 1e-3},
                 0.01F,
                 {0.356112361F, -1.05661201F, 1.9011215F, -0.0210339166F}},
        RuleCase{"adamw", {.name = "adamw"}, 0.01F, {0.330720812F, -1.01346421F, 1.89645565F, -0.0429105833F}}),
    [](const auto& test) { return test.param.title; });

TEST_P(RuleTest, GivesWhatPyTorchGivesAfterThreeUpdates) {
  const auto rule = make_rule(GetParam().options);
  State state(*rule, {0.5F, -1.0F, 2.0F, 0.0F});
  const std::array<Floats, 3> gradients = {Floats{0.1F, -0.2F, 0.3F, 0.0F}, Floats{0.4F, 0.5F, -0.6F, 0.01F},
                                           Floats{-0.7F, 0.8F, 0.9F, -0.02F}};
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    state.update(*rule, {0.1F, GetParam().weight_decay, i + 1}, gradients[i], 0, 4);
  }
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(state.values[i], GetParam().expected[i], 4e-7) << i;
  }
}

TEST_P(RuleTest, GivesTheSameBitsOnAnyCutOfTheRange) {
  constexpr std::size_t kCount = 203;
  const CounterRandom random(11, RandomUse::generate);
  const auto rule = make_rule(GetParam().options);
  Floats begin(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    begin[i] = random.normal(0, i);
  }
  State whole(*rule, begin);
  std::vector<State> cut(9, State(*rule, begin));  // the i-th is cut in pieces of i + 1
  for (std::uint64_t count = 1; count <= 4; ++count) {
    Floats gradient(kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      gradient[i] = random.normal(count, i);
    }
    const UpdateStep step = {0.1F, GetParam().weight_decay, count};
    whole.update(*rule, step, gradient, 0, kCount);
    for (std::size_t piece = 1; piece <= cut.size(); ++piece) {
      for (std::size_t i = 0; i < kCount; i += piece) {
        cut[piece - 1].update(*rule, step, gradient, i, std::min(kCount, i + piece));
      }
    }
  }
  for (const State& state : cut) {
    EXPECT_EQ(state.values, whole.values);
    EXPECT_EQ(state.slots, whole.slots);
  }
}

TEST(Rules, AllHaveAReachableNameAndDistinctSlotNames) {
  for (const std::string_view name : rule_names()) {
    const auto rule = make_rule({.name = std::string(name)});
    EXPECT_EQ(rule->name(), name);
    if (rule->slots() == 2) {
      EXPECT_NE(rule->slot_name(0), rule->slot_name(1));
    }
  }
}

TEST(Rules, AnUnknownNameListsThoseThatExist) {
  try {
    make_rule({.name = "adma"});
    FAIL();
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(),
                 "unknown optimizer 'adma'; expected one of sgd, momentum, nesterov, adagrad, rmsprop, adam, adamw; "
                 "did you mean 'adam'?");
  }
}

TEST(Rules, ConstantsOutOfRangeAreRefused) {
  EXPECT_THROW(make_rule({.name = "sgd", .momentum = 1.0}), InputError);
  EXPECT_THROW(make_rule({.name = "sgd", .momentum = -0.1}), InputError);
  EXPECT_THROW(make_rule({.name = "adam", .beta2 = 1.0}), InputError);
  EXPECT_THROW(make_rule({.name = "adam", .epsilon = 0.0}), InputError);
  EXPECT_THROW(make_rule({.name = "rmsprop", .rho = -1}), InputError);
  EXPECT_THROW(make_rule({.name = "adagrad", .initial_accumulator = -1}), InputError);
}

}  // namespace
}  // namespace distbelief
