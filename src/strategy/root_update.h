#pragma once

#include "strategy/step_exchange.h"

namespace distbelief {

/// Synchronous SGD with a root: gradients are summed at the first member, which alone decides on the update and sends
/// the parameters back to all. Twice the traffic of AllReduce at the root, a fraction of its memory elsewhere: only the
/// root and the second member, which is told the sum of gradients and makes the same update, keep the optimizer's
/// state. So it is not lost when one of them dies.
class RootUpdate : public Strategy {
 public:
  /// All but `options` are borrowed.
  RootUpdate(Replica& replica, const UpdateRule& rule, Group& group, const GroupOptions& options);
  [[nodiscard]] StepReport join() override;
  [[nodiscard]] StepReport step(BatchStream& batches, const StepRequest& request) override;
  bool holds_state() const override { return shard_.has_value(); }
  bool is_prepared() const override { return prepared_.has_value(); }
  [[nodiscard]] StepReport finish_prepared(BatchStream& batches) override;
  /// Of the root and the second member; the others have nothing to keep.
  void visit_state(StateVisitor& visitor) override;
  void expect_rows(std::int64_t most_rows) override { exchange_.expect_rows(most_rows); }

 private:
  /// The second half of a step whose gradient the root has in `gradient`: the second member gets it, both make the
  /// update, and all learn what became of it and get the parameters that it made.
  Outcome make_update(const Batch& batch, const StepExchange::Told& told, std::span<float> gradient,
                      const UpdateOptions& options, Clock::time_point deadline, WholeUpdate& update);
  bool is_root() const { return group_.position() == 0; }
  /// The root's bytes become the second member's; nothing happens elsewhere.
  Outcome tell_second(std::span<std::byte> bytes, Clock::time_point deadline);

  Replica& replica_;
  Group& group_;
  const GroupOptions options_;
  std::optional<ParameterShard> shard_;  ///< the root's and the second member's
  StepExchange exchange_;
  std::uint32_t told_second_ = 0;  ///< messages
  std::optional<PreparedStep> prepared_;
};

}  // namespace distbelief
