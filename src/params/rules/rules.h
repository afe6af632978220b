#pragma once

#include <memory>

#include "params/update_rule.h"

/// The update rules that exist. To add one: write rules/<name>.cc with make_<name>_rule(), and a line here.
#define DISTBELIEF_RULES(RULE) \
  RULE(sgd)                    \
  RULE(momentum)               \
  RULE(nesterov)

namespace distbelief {

#define DISTBELIEF_DECLARE_RULE(name) std::unique_ptr<UpdateRule> make_##name##_rule(const RuleOptions& options);
DISTBELIEF_RULES(DISTBELIEF_DECLARE_RULE)
#undef DISTBELIEF_DECLARE_RULE

/// Throws InputError unless low ≤ value < high.
void require_in(std::string_view rule, std::string_view option, float value, float low, float high);

}  // namespace distbelief
