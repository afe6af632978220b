// RMSProp (Hinton's lecture 6, 2012), as PyTorch's:
//   g = gradient + weight_decay × value
//   v = rho × v + (1 − rho) × g²
//   value −= rate × g / (√v + epsilon)
// and with momentum:
//   m = momentum × m + g / (√v + epsilon)
//   value −= rate × m
#include <cmath>

#include "base/multiversion.h"
#include "params/rules/rules.h"

namespace distbelief {

namespace {

DISTBELIEF_MULTIVERSION
void rmsprop_loop(float* __restrict values, const float* __restrict gradient, float* __restrict squares,
                  std::size_t count, float rate, float decay, float fresh, float epsilon) {
  for (std::size_t i = 0; i < count; ++i) {
    const float g = gradient[i] + decay * values[i];
    const float v = squares[i] + fresh * (g * g - squares[i]);
    squares[i] = v;
    values[i] -= rate * g / (std::sqrt(v) + epsilon);
  }
}

DISTBELIEF_MULTIVERSION
void rmsprop_momentum_loop(float* __restrict values, const float* __restrict gradient, float* __restrict squares,
                           float* __restrict velocity, std::size_t count, float rate, float decay, float fresh,
                           float epsilon, float momentum) {
  for (std::size_t i = 0; i < count; ++i) {
    const float g = gradient[i] + decay * values[i];
    const float v = squares[i] + fresh * (g * g - squares[i]);
    squares[i] = v;
    const float m = momentum * velocity[i] + g / (std::sqrt(v) + epsilon);
    velocity[i] = m;
    values[i] -= rate * m;
  }
}

class Rmsprop final : public UpdateRule {
 public:
  Rmsprop(double rho, float epsilon, float momentum)
      : fresh_(static_cast<float>(1 - rho)), epsilon_(epsilon), momentum_(momentum) {}
  std::string_view name() const override { return "rmsprop"; }
  int slots() const override { return momentum_ > 0 ? 2 : 1; }
  std::string_view slot_name(int slot) const override { return slot == 0 ? "rmsprop.square" : "momentum"; }
  void apply(const UpdateStep& step, std::span<float> values, std::span<const float> gradient,
             std::span<float* const> slots) const override {
    if (momentum_ > 0) {
      rmsprop_momentum_loop(values.data(), gradient.data(), slots[0], slots[1], values.size(), step.rate,
                            step.weight_decay, fresh_, epsilon_, momentum_);
    } else {
      rmsprop_loop(values.data(), gradient.data(), slots[0], values.size(), step.rate, step.weight_decay, fresh_,
                   epsilon_);
    }
  }

 private:
  float fresh_;
  float epsilon_;
  float momentum_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_rmsprop_rule(const RuleOptions& options) {
  const double momentum = options.momentum.value_or(0);
  require_in(options.name, "rho", options.rho, 0, 1);
  require_in(options.name, "momentum", momentum, 0, 1);
  return std::make_unique<Rmsprop>(options.rho, epsilon_of(options, 1e-8), static_cast<float>(momentum));
}

}  // namespace distbelief
