// Adam (Kingma and Ba 2015) and AdamW (Loshchilov and Hutter 2019), as PyTorch's; t is the number of the update:
//   Adam:  g = gradient + weight_decay × value
//   AdamW: g = gradient, value −= rate × weight_decay × value
//   m = beta1 × m + (1 − beta1) × g
//   v = beta2 × v + (1 − beta2) × g²
//   value −= rate × (m / (1 − beta1^t)) / (√(v / (1 − beta2^t)) + epsilon)
#include <cmath>

#include "base/multiversion.h"
#include "params/rules/rules.h"

namespace distbelief {

namespace {

struct AdamStep {
  float rate;    // rate / (1 − beta1^t)
  float root;    // 1 / √(1 − beta2^t)
  float decay;   // what of the value joins the gradient
  float keep;    // what of the value stays
  float fresh1;  // 1 − beta1
  float fresh2;  // 1 − beta2
  float epsilon;
};

DISTBELIEF_MULTIVERSION
void adam_loop(float* __restrict values, const float* __restrict gradient, float* __restrict mean,
               float* __restrict squares, std::size_t count, const AdamStep step) {
  for (std::size_t i = 0; i < count; ++i) {
    const float g = gradient[i] + step.decay * values[i];
    const float m = mean[i] + step.fresh1 * (g - mean[i]);
    const float v = squares[i] + step.fresh2 * (g * g - squares[i]);
    mean[i] = m;
    squares[i] = v;
    values[i] = step.keep * values[i] - step.rate * m / (std::sqrt(v) * step.root + step.epsilon);
  }
}

class Adam final : public UpdateRule {
 public:
  Adam(double beta1, double beta2, float epsilon, bool decoupled)
      : beta1_(beta1), beta2_(beta2), epsilon_(epsilon), decoupled_(decoupled) {}
  std::string_view name() const override { return decoupled_ ? "adamw" : "adam"; }
  int slots() const override { return 2; }
  std::string_view slot_name(int slot) const override { return slot == 0 ? "adam.m" : "adam.v"; }
  void apply(const UpdateStep& step, std::span<float> values, std::span<const float> gradient,
             std::span<float* const> slots) const override {
    const auto count = static_cast<double>(step.count);
    AdamStep numbers;
    numbers.rate = static_cast<float>(step.rate / (1 - std::pow(beta1_, count)));
    numbers.root = static_cast<float>(1 / std::sqrt(1 - std::pow(beta2_, count)));
    numbers.decay = decoupled_ ? 0 : step.weight_decay;
    numbers.keep = decoupled_ ? static_cast<float>(1 - double{step.rate} * step.weight_decay) : 1;
    numbers.fresh1 = static_cast<float>(1 - beta1_);
    numbers.fresh2 = static_cast<float>(1 - beta2_);
    numbers.epsilon = epsilon_;
    adam_loop(values.data(), gradient.data(), slots[0], slots[1], values.size(), numbers);
  }

 private:
  double beta1_;
  double beta2_;
  float epsilon_;
  bool decoupled_;
};

std::unique_ptr<UpdateRule> make_either(const RuleOptions& options, bool decoupled) {
  require_in(options.name, "beta1", options.beta1, 0, 1);
  require_in(options.name, "beta2", options.beta2, 0, 1);
  return std::make_unique<Adam>(options.beta1, options.beta2, epsilon_of(options, 1e-8), decoupled);
}

}  // namespace

std::unique_ptr<UpdateRule> make_adam_rule(const RuleOptions& options) { return make_either(options, false); }

std::unique_ptr<UpdateRule> make_adamw_rule(const RuleOptions& options) { return make_either(options, true); }

}  // namespace distbelief
