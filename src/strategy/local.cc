#include "strategy/local.h"

#include <cmath>

#include "base/check.h"

namespace distbelief {

void Local::join(Replica& replica) {
  shard_.emplace(replica.table(), replica.table().everything(), rule_, replica.values());
}

StepReport Local::step(Replica& replica, BatchStream& batches, const UpdateOptions& update) {
  const Batch* batch = batches.next();
  if (batch == nullptr) {
    return {.outcome = StepReport::Outcome::end_of_epoch, .sums = {}};
  }
  const LossSums sums = replica.compute_gradient(*batch);
  if (!std::isfinite(sums.loss)) {
    batches.dropped(*batch);
    return {.outcome = StepReport::Outcome::diverged, .sums = sums, .culprit = replica.find_nonfinite(*batch)};
  }
  // An epoch is one lease; its batches are the pushes, in order.
  const std::uint64_t lease = batch->epoch;
  shard_->prune_leases(lease);
  const PushId push{lease, shard_->next_seq(lease)};
  const UpdateReport report =
      shard_->apply(push, replica.gradients(), 1.0F / static_cast<float>(sums.rows), update, shard_->version());
  if (report.result == ApplyResult::dropped) {
    batches.dropped(*batch);
    const std::string name = replica.nonfinite_gradient();  // none: only the sum of its squares is too large
    return {.outcome = StepReport::Outcome::diverged,
            .sums = sums,
            .culprit = name.empty() ? "the gradient's length" : "the gradient of '" + name + "'"};
  }
  check(report.result == ApplyResult::applied, "a local push is neither late nor early");
  batches.applied(*batch);
  if (!report.finite) {
    return {.outcome = StepReport::Outcome::diverged,
            .sums = sums,
            .culprit = "parameter '" + replica.nonfinite_parameter() + "'"};
  }
  return {.outcome = StepReport::Outcome::stepped, .sums = sums};
}

void Local::visit_state(StateVisitor& visitor) { shard_->visit_state(visitor); }

}  // namespace distbelief
