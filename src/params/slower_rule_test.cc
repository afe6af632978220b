#include "params/slower_rule.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

namespace distbelief {
namespace {

/// How far so many updates with a constant gradient move a value.
double way(const UpdateRule& rule, double rate, int updates) {
  float value = 0, gradient = 1;
  std::array<float, 2> numbers = {};
  std::array<float*, 2> slots = {&numbers[0], &numbers[1]};
  for (int i = 0; i < updates; ++i) {
    rule.apply({.rate = static_cast<float>(rate), .count = static_cast<std::uint64_t>(i) + 1}, {&value, 1},
               {&gradient, 1}, {slots.data(), static_cast<std::size_t>(rule.slots())});
  }
  return -value;
}

TEST(SlowerRule, ManyUpdatesGoAsFarAsOne) {
  for (const char* name : {"sgd", "momentum", "nesterov", "adagrad", "rmsprop", "adam", "adamw"}) {
    const RuleOptions options = {.name = name};
    for (const int times : {1, 2, 4, 16}) {
      const SlowerRule slower = slower_rule(options, times);
      const double whole = way(*make_rule(options), 0.01, 500);
      EXPECT_NEAR(way(*make_rule(slower.options), 0.01 * slower.rate, 500 * times), whole, 0.05 * whole)
          << name << ", " << times << " times";
    }
  }
}

TEST(SlowerRule, OnceIsTheRuleItself) {
  const SlowerRule same = slower_rule({.name = "sgd", .momentum = 0.9}, 1);
  EXPECT_EQ(same.rate, 1);
  EXPECT_EQ(same.options.momentum, 0.9);
}

TEST(SlowerRule, MomentumFadesAsMuchInAsManyParts) {
  const SlowerRule slower = slower_rule({.name = "sgd", .momentum = 0.9}, 4);
  EXPECT_NEAR(std::pow(*slower.options.momentum, 4), 0.9, 1e-12);
}

}  // namespace
}  // namespace distbelief
