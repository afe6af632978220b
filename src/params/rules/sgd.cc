// Stochastic gradient descent:
//   g = gradient + weight_decay × value
//   value −= rate × g
// With momentum or nesterov asked for, it is the momentum rule.
#include "base/multiversion.h"
#include "params/rules/rules.h"

namespace distbelief {

namespace {

DISTBELIEF_MULTIVERSION
void sgd_loop(float* __restrict values, const float* __restrict gradient, std::size_t count, float rate, float decay) {
  for (std::size_t i = 0; i < count; ++i) {
    const float g = gradient[i] + decay * values[i];
    values[i] -= rate * g;
  }
}

class Sgd final : public UpdateRule {
 public:
  std::string_view name() const override { return "sgd"; }
  int slots() const override { return 0; }
  std::string_view slot_name(int /*slot*/) const override { return {}; }
  bool rests_at_zero() const override { return true; }
  void apply(const UpdateStep& step, std::span<float> values, std::span<const float> gradient,
             std::span<float* const> /*slots*/) const override {
    sgd_loop(values.data(), gradient.data(), values.size(), step.rate, step.weight_decay);
  }
};

}  // namespace

std::unique_ptr<UpdateRule> make_sgd_rule(const RuleOptions& options) {
  if (options.momentum.value_or(0) != 0 || options.nesterov) {
    return make_momentum_rule(options);
  }
  return std::make_unique<Sgd>();
}

}  // namespace distbelief
