#include "params/slower_rule.h"

#include <cmath>

#include "base/check.h"

namespace distbelief {

SlowerRule slower_rule(const RuleOptions& options, int times) {
  check(times > 0, "updates come at least as often");
  SlowerRule slower = {options, 1.0 / times};
  if (times == 1) {
    return slower;
  }
  const auto root = [&](double memory) { return std::pow(memory, 1.0 / times); };
  const bool has_own = options.name == "momentum" || options.name == "nesterov" || options.nesterov;
  const double momentum = options.momentum.value_or(has_own ? 0.9 : 0.0);
  if (momentum > 0 && momentum < 1) {
    slower.options.momentum = root(momentum);
    slower.rate *= (1 - root(momentum)) / (1 - momentum);
  }
  slower.options.beta1 = root(options.beta1);
  slower.options.beta2 = root(options.beta2);
  slower.options.rho = root(options.rho);
  if (options.name == "adagrad") {
    slower.rate = 1 / std::sqrt(times);  // its sum of squares grows as many times as fast
  }
  return slower;
}

}  // namespace distbelief
