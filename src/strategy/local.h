#pragma once

#include "strategy/strategy.h"

namespace distbelief {

/// One process, no exchange: every batch's gradient goes straight into the parameters. The yardstick for all others.
class Local : public Strategy {
 public:
  /// `rule` is borrowed and must outlive the strategy.
  explicit Local(const UpdateRule& rule) : rule_(rule) {}
  void join(Replica& replica) override;
  [[nodiscard]] StepReport step(Replica& replica, BatchStream& batches, const UpdateOptions& update) override;
  void visit_state(StateVisitor& visitor) override;

 private:
  const UpdateRule& rule_;
  std::optional<ParameterShard> shard_;  ///< the whole model, in the replica's own memory
};

}  // namespace distbelief
