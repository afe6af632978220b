#pragma once

#include <optional>

#include "comm/gradient_buckets.h"
#include "exec/gradient_listener.h"
#include "strategy/step_exchange.h"

namespace distbelief {

/// Synchronous SGD without a server: every member computes the gradient of its share of the batch, gradients are summed
/// over the group while backward still runs, and each member makes the same update to its own copy of the parameters.
/// With the same global batch it does what Local does, up to the order of sums.
class AllReduce : public Strategy {
 public:
  /// All but `options` are borrowed.
  AllReduce(Replica& replica, const UpdateRule& rule, Group& group, const GroupOptions& options);
  [[nodiscard]] StepReport join() override;
  [[nodiscard]] StepReport step(BatchStream& batches, const StepRequest& request) override;
  bool is_prepared() const override { return prepared_.has_value(); }
  [[nodiscard]] StepReport finish_prepared(BatchStream& batches) override;
  void visit_state(StateVisitor& visitor) override;
  void expect_rows(std::int64_t most_rows) override { exchange_.expect_rows(most_rows); }
  /// Tells how much of the sums was hidden behind backward.
  const GradientBuckets& buckets() const { return buckets_; }

 private:
  /// Forwards from lanes to buckets.
  class Listener : public GradientListener {
   public:
    explicit Listener(GradientBuckets& buckets) : buckets_(buckets) {}
    void final_from(int lane, std::int64_t offset) override { buckets_.final_from(lane, offset); }

   private:
    GradientBuckets& buckets_;
  };

  Replica& replica_;
  Group& group_;
  const GroupOptions options_;
  ParameterShard shard_;
  StepExchange exchange_;
  GradientBuckets buckets_;
  Listener listener_;
  std::optional<PreparedStep> prepared_;
};

}  // namespace distbelief
