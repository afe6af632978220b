// Adagrad (Duchi et al. 2011), as PyTorch's; with the small epsilon it is that of Dean et al. 2012, in which each
// parameter has the learning rate  rate / √Σg²:
//   g = gradient + weight_decay × value
//   s = s + g²
//   value −= rate × g / (√s + epsilon)
#include <cmath>

#include "base/multiversion.h"
#include "params/rules/rules.h"

namespace distbelief {

namespace {

DISTBELIEF_MULTIVERSION
void adagrad_loop(float* __restrict values, const float* __restrict gradient, float* __restrict squares,
                  std::size_t count, float rate, float decay, float epsilon) {
  for (std::size_t i = 0; i < count; ++i) {
    const float g = gradient[i] + decay * values[i];
    const float s = squares[i] + g * g;
    squares[i] = s;
    values[i] -= rate * g / (std::sqrt(s) + epsilon);
  }
}

class Adagrad final : public UpdateRule {
 public:
  Adagrad(float epsilon, float initial) : epsilon_(epsilon), initial_(initial) {}
  std::string_view name() const override { return "adagrad"; }
  int slots() const override { return 1; }
  std::string_view slot_name(int /*slot*/) const override { return "adagrad.sum"; }
  float initial_slot_value(int /*slot*/) const override { return initial_; }
  bool rests_at_zero() const override { return true; }  // epsilon is above 0
  void apply(const UpdateStep& step, std::span<float> values, std::span<const float> gradient,
             std::span<float* const> slots) const override {
    adagrad_loop(values.data(), gradient.data(), slots[0], values.size(), step.rate, step.weight_decay, epsilon_);
  }

 private:
  float epsilon_;
  float initial_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_adagrad_rule(const RuleOptions& options) {
  require_in(options.name, "initial_accumulator", options.initial_accumulator, 0, 1e30);
  return std::make_unique<Adagrad>(epsilon_of(options, 1e-10), static_cast<float>(options.initial_accumulator));
}

}  // namespace distbelief
