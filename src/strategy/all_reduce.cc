#include "strategy/all_reduce.h"

#include <array>
#include <cmath>

#include "strategy/whole_model.h"

namespace distbelief {

AllReduce::AllReduce(Replica& replica, const UpdateRule& rule, Group& group, const GroupOptions& options)
    : replica_(replica),
      group_(group),
      options_(options),
      shard_(replica.table(), replica.table().everything(), rule, replica.values()),
      exchange_(group, options.most_rows),
      buckets_(group, replica.table().size(), replica.table().optimized_size()),
      listener_(buckets_) {}

StepReport AllReduce::join() {
  const Clock::time_point deadline = Clock::now() + options_.patience;
  Outcome outcome = group_.broadcast(std::as_writable_bytes(replica_.values()), 0, deadline);
  if (outcome.ok()) {
    outcome = share_state(group_, *this, deadline);
  }
  return outcome.ok() ? StepReport{} : lost_report(outcome);
}

StepReport AllReduce::step(BatchStream& batches, const StepRequest& request) {
  const Batch* batch = batches.next();
  if (batch == nullptr) {
    return {.outcome = StepReport::Outcome::end_of_epoch};
  }
  const Clock::time_point deadline = Clock::now() + options_.patience;
  const std::vector<std::span<float>> lanes = replica_.gradient_memory(batch->size());
  buckets_.begin(lanes, deadline);
  const LossSums own = compute_or_zero(replica_, *batch, lanes, &listener_);
  StepExchange::Told told;
  Outcome outcome = buckets_.finish();
  if (outcome.ok()) {
    outcome = exchange_.tell(own, contributions(*batch, lanes), batch->ids, request.stop, deadline, told);
  }
  if (!outcome.ok()) {
    return lost_report(outcome);
  }
  StepReport report = {.sums = told.sums, .stop = told.stop};
  batches.leased_by_others(told.others);
  if (!std::isfinite(report.sums.loss)) {
    return exchange_.diverged(replica_, *batch, own, told, batches, deadline);
  }
  average_observed(replica_.table(), lanes[0], told.contributions);
  const std::array<std::span<const float>, 1> parts = {lanes[0]};
  const WholeUpdate update = apply_to_whole(shard_, replica_, batch->epoch, parts, report.sums.rows, request.update);
  settle_samples(batches, *batch, told, update.applied);
  if (!update.culprit.empty()) {
    report.outcome = StepReport::Outcome::diverged;
    report.culprit = update.culprit;
  }
  return report;
}

void AllReduce::visit_state(StateVisitor& visitor) { shard_.visit_state(visitor); }

}  // namespace distbelief
