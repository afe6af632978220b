#include "params/rules/rules.h"

#include <array>
#include <limits>

#include "base/error.h"
#include "base/nearest_name.h"

namespace distbelief {

namespace {
struct Registration {
  std::string_view name;
  std::unique_ptr<UpdateRule> (*make)(const RuleOptions&);
};
#define DISTBELIEF_LIST_RULE(name) Registration{#name, make_##name##_rule},
constexpr std::array kRules = {DISTBELIEF_RULES(DISTBELIEF_LIST_RULE)};
#undef DISTBELIEF_LIST_RULE
}  // namespace

std::vector<std::string_view> rule_names() {
  std::vector<std::string_view> names;
  names.reserve(kRules.size());
  for (const Registration& rule : kRules) {
    names.push_back(rule.name);
  }
  return names;
}

std::unique_ptr<UpdateRule> make_rule(const RuleOptions& options) {
  for (const Registration& rule : kRules) {
    if (rule.name == options.name) {
      return rule.make(options);
    }
  }
  throw InputError(fmt::format("unknown optimizer '{}'; expected one of {}{}", options.name, listed(rule_names()),
                               did_you_mean(options.name, rule_names())));
}

void require_in(std::string_view rule, std::string_view option, double value, double low, double high) {
  if (!(value >= low && value < high)) {
    throw InputError(
        fmt::format("optimizer {}: {} is {}; expected at least {} and less than {}", rule, option, value, low, high));
  }
}

float epsilon_of(const RuleOptions& options, double otherwise) {
  const double epsilon = options.epsilon.value_or(otherwise);
  require_in(options.name, "epsilon", epsilon, std::numeric_limits<float>::min(), 1e6);
  return static_cast<float>(epsilon);
}

}  // namespace distbelief
