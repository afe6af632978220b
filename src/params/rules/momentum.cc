// Momentum (Polyak 1964) and Nesterov's look-ahead (Sutskever et al. 2013), as PyTorch's SGD:
//   g = gradient + weight_decay × value
//   m = momentum × m + (1 − dampening) × g        in the first update m = g
//   value −= rate × m                             Nesterov: value −= rate × (g + momentum × m)
#include "base/multiversion.h"
#include "params/rules/rules.h"

namespace distbelief {

namespace {

DISTBELIEF_MULTIVERSION
void momentum_loop(float* __restrict values, const float* __restrict gradient, float* __restrict velocity,
                   std::size_t count, float rate, float decay, float momentum, float share) {
  for (std::size_t i = 0; i < count; ++i) {
    const float g = share * (gradient[i] + decay * values[i]);
    const float m = g + momentum * velocity[i];
    velocity[i] = m;
    values[i] -= rate * m;
  }
}

DISTBELIEF_MULTIVERSION
void nesterov_loop(float* __restrict values, const float* __restrict gradient, float* __restrict velocity,
                   std::size_t count, float rate, float decay, float momentum, float share) {
  for (std::size_t i = 0; i < count; ++i) {
    const float g = gradient[i] + decay * values[i];
    const float m = share * g + momentum * velocity[i];
    velocity[i] = m;
    values[i] -= rate * (g + momentum * m);
  }
}

class Momentum final : public UpdateRule {
 public:
  Momentum(double momentum, double dampening, bool nesterov)
      : momentum_(static_cast<float>(momentum)), share_(static_cast<float>(1 - dampening)), nesterov_(nesterov) {}
  std::string_view name() const override { return nesterov_ ? "nesterov" : "momentum"; }
  int slots() const override { return 1; }
  std::string_view slot_name(int /*slot*/) const override { return "momentum"; }
  void apply(const UpdateStep& step, std::span<float> values, std::span<const float> gradient,
             std::span<float* const> slots) const override {
    const float share = step.count == 1 ? 1.0F : share_;
    const auto loop = nesterov_ ? nesterov_loop : momentum_loop;
    loop(values.data(), gradient.data(), slots[0], values.size(), step.rate, step.weight_decay, momentum_, share);
  }

 private:
  float momentum_;
  float share_;
  bool nesterov_;
};

std::unique_ptr<UpdateRule> make_with_momentum(const RuleOptions& options, bool nesterov) {
  const double momentum = options.momentum.value_or(0.9);
  require_in(options.name, "momentum", momentum, 0, 1);
  require_in(options.name, "dampening", options.dampening, 0, 1);
  return std::make_unique<Momentum>(momentum, options.dampening, nesterov);
}

}  // namespace

std::unique_ptr<UpdateRule> make_momentum_rule(const RuleOptions& options) {
  return make_with_momentum(options, options.nesterov);
}

std::unique_ptr<UpdateRule> make_nesterov_rule(const RuleOptions& options) {
  return make_with_momentum(options, true);
}

}  // namespace distbelief
