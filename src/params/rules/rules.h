#pragma once

#include <memory>

#include "params/update_rule.h"

/// The update rules that exist. To add one: write a file here with its formula and make_<name>_rule(), and a line
/// below.
#define DISTBELIEF_RULES(RULE) \
  RULE(sgd)                    \
  RULE(momentum)               \
  RULE(nesterov)               \
  RULE(adagrad)                \
  RULE(rmsprop)                \
  RULE(adam)                   \
  RULE(adamw)

namespace distbelief {

#define DISTBELIEF_DECLARE_RULE(name) std::unique_ptr<UpdateRule> make_##name##_rule(const RuleOptions& options);
DISTBELIEF_RULES(DISTBELIEF_DECLARE_RULE)
#undef DISTBELIEF_DECLARE_RULE

/// Throws InputError unless the option's value is fit: low ≤ value < high.
void require_in(std::string_view rule, std::string_view option, double value, double low, double high);

/// The option, or its default; throws InputError unless it is above 0, without which 0 / 0 is near.
float epsilon_of(const RuleOptions& options, double otherwise);

}  // namespace distbelief
