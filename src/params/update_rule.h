#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace distbelief {

/// What a rule is told about one update, besides the numbers.
struct UpdateStep {
  float rate = 0;
  float weight_decay = 0;   ///< 0 where decay does not apply
  std::uint64_t count = 1;  ///< this is the count-th update, from 1
};

/// How a gradient changes parameters: a formula on any range of the flat space, element by element, so that a range cut
/// in pieces gives the same bits. Immutable, thread-safe; the state is in the slots that the caller keeps.
class UpdateRule {
 public:
  virtual ~UpdateRule() = default;
  virtual std::string_view name() const = 0;
  /// How many numbers the rule keeps for each parameter.
  virtual int slots() const = 0;
  /// As checkpoints call it: "momentum", "adam.m".
  virtual std::string_view slot_name(int slot) const = 0;
  virtual float initial_slot_value(int /*slot*/) const { return 0; }
  /// Whether a gradient of 0, without weight decay, leaves a finite value and its slots as they are, to the bit.
  virtual bool rests_at_zero() const { return false; }
  /// `gradient` and each of `slots` are as long as `values`; none overlap.
  virtual void apply(const UpdateStep& step, std::span<float> values, std::span<const float> gradient,
                     std::span<float* const> slots) const = 0;
};

/// Which rule, and its constants; each rule takes those that concern it. What is not given is as PyTorch has it.
struct RuleOptions {
  std::string name = "sgd";
  std::optional<double> momentum = {};  ///< sgd and rmsprop: 0, momentum and nesterov: 0.9
  bool nesterov = false;                ///< sgd and momentum: look ahead
  double dampening = 0;  ///< momentum, nesterov: how much less of the gradient enters after the first update
  double beta1 = 0.9;    ///< adam, adamw: memory of the mean
  double beta2 = 0.999;  ///< adam, adamw: memory of the mean square
  double rho = 0.99;     ///< rmsprop: memory of the mean square
  std::optional<double> epsilon = {};  ///< adagrad: 1e-10, rmsprop, adam and adamw: 1e-8
  double initial_accumulator = 0;      ///< adagrad: where the sum of squares begins
};

/// Throws InputError for an unknown name, with those that exist, and for constants out of range.
std::unique_ptr<UpdateRule> make_rule(const RuleOptions& options);
/// In the order in which they are listed to users.
std::vector<std::string_view> rule_names();

}  // namespace distbelief
