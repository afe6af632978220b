#include "strategy/all_reduce.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "strategy/whole_model.h"

namespace distbelief {

AllReduce::AllReduce(Replica& replica, const UpdateRule& rule, Group& group, const Options& options)
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
  return outcome.ok() ? StepReport{} : StepReport{StepReport::Outcome::group_lost, {}, lost_text(outcome)};
}

StepReport AllReduce::step(BatchStream& batches, const StepRequest& request) {
  const Batch* batch = batches.next();
  if (batch == nullptr) {
    return {.outcome = StepReport::Outcome::end_of_epoch};
  }
  const Clock::time_point deadline = Clock::now() + options_.patience;
  const std::vector<std::span<float>> lanes = replica_.gradient_memory(batch->size());
  buckets_.begin(lanes, deadline);
  LossSums own;
  if (batch->size() > 0) {
    own = replica_.compute_gradient(*batch, &listener_);
  } else {
    std::ranges::fill(lanes[0], 0.0F);
  }
  StepExchange::Told told;
  Outcome outcome = buckets_.finish();
  if (outcome.ok()) {
    const std::int64_t contributions = batch->size() > 0 ? static_cast<std::int64_t>(lanes.size()) : 0;
    outcome = exchange_.tell(own, contributions, batch->ids, request.stop, deadline, told);
  }
  if (!outcome.ok()) {
    return {.outcome = StepReport::Outcome::group_lost, .culprit = lost_text(outcome)};
  }

  StepReport report = {.sums = told.sums, .stop = told.stop};
  batches.leased_by_others(told.others);
  if (!std::isfinite(report.sums.loss)) {
    report.outcome = StepReport::Outcome::diverged;
    if (!std::isfinite(own.loss)) {
      report.culprit = replica_.find_nonfinite(*batch);
    }
    outcome = exchange_.tell_culprit(report.culprit, deadline);
    if (!outcome.ok()) {
      report.culprit = lost_text(outcome);
    }
  } else {
    // What was observed, such as batch norm's statistics, counts as the mean of all that observed it.
    const std::span<float> sum = lanes[0];
    for (float& observed : sum.subspan(static_cast<std::size_t>(replica_.table().optimized_size()))) {
      observed /= static_cast<float>(told.contributions);
    }
    const std::array<std::span<const float>, 1> parts = {sum};
    if (!apply_to_whole(shard_, batch->epoch, parts, report.sums.rows, request.update)) {
      report.outcome = StepReport::Outcome::diverged;
      report.culprit = "the gradient";
    }
  }
  if (report.outcome == StepReport::Outcome::stepped) {
    batches.applied(batch->ids);
    batches.applied(told.others);
  } else {
    batches.dropped(batch->ids);
    batches.dropped(told.others);
  }
  return report;
}

void AllReduce::visit_state(StateVisitor& visitor) { shard_.visit_state(visitor); }

}  // namespace distbelief
