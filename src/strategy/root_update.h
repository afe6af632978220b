#pragma once

#include "strategy/step_exchange.h"

namespace distbelief {

/// Synchronous SGD with a root: gradients are summed at the first member, which alone keeps the optimizer's state,
/// makes the update and sends the parameters back to all. Twice the traffic of AllReduce at the root, a fraction of its
/// memory elsewhere.
class RootUpdate : public Strategy {
 public:
  /// All but `options` are borrowed.
  RootUpdate(Replica& replica, const UpdateRule& rule, Group& group, const GroupOptions& options);
  [[nodiscard]] StepReport join() override;
  [[nodiscard]] StepReport step(BatchStream& batches, const StepRequest& request) override;
  bool holds_state() const override { return shard_.has_value(); }
  /// Of the root; the others have nothing to keep.
  void visit_state(StateVisitor& visitor) override;

 private:
  /// All learn what became of the root's update, and get the parameters that it made.
  Outcome share(WholeUpdate& update, Clock::time_point deadline);

  Replica& replica_;
  Group& group_;
  const GroupOptions options_;
  std::optional<ParameterShard> shard_;  ///< the root's
  StepExchange exchange_;
};

}  // namespace distbelief
