#pragma once

#include "strategy/strategy.h"

namespace distbelief {

/// One process, no exchange: every batch's gradient goes straight into the parameters. The yardstick for all others.
class Local : public Strategy {
 public:
  /// Both are borrowed.
  Local(Replica& replica, const UpdateRule& rule);
  [[nodiscard]] StepReport join() override { return {}; }
  [[nodiscard]] StepReport step(BatchStream& batches, const StepRequest& request) override;
  void visit_state(StateVisitor& visitor) override;

 private:
  Replica& replica_;
  ParameterShard shard_;  ///< the whole model, in the replica's own memory
};

}  // namespace distbelief
