#include "strategy/root_update.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "strategy/whole_model.h"

namespace distbelief {

RootUpdate::RootUpdate(Replica& replica, const UpdateRule& rule, Group& group, const GroupOptions& options)
    : replica_(replica), group_(group), options_(options), exchange_(group, options.most_rows) {
  if (group.position() == 0) {
    shard_.emplace(replica.table(), replica.table().everything(), rule, replica.values());
  }
}

StepReport RootUpdate::join() {
  const Outcome outcome =
      group_.broadcast(std::as_writable_bytes(replica_.values()), 0, Clock::now() + options_.patience);
  return outcome.ok() ? StepReport{} : lost_report(outcome);
}

WholeUpdate RootUpdate::apply(std::span<float> sum, const StepExchange::Told& told, std::uint64_t epoch,
                              const UpdateOptions& update) {
  average_observed(replica_.table(), sum, told.contributions);
  const std::array<std::span<const float>, 1> parts = {sum};
  return apply_to_whole(*shard_, replica_, epoch, parts, told.sums.rows, update);
}

StepReport RootUpdate::step(BatchStream& batches, const StepRequest& request) {
  const Batch* batch = batches.next();
  if (batch == nullptr) {
    return {.outcome = StepReport::Outcome::end_of_epoch};
  }
  const Clock::time_point deadline = Clock::now() + options_.patience;
  const std::vector<std::span<float>> lanes = replica_.gradient_memory(batch->size());
  const LossSums own = compute_or_zero(replica_, *batch, lanes, nullptr);
  for (std::size_t lane = 1; lane < lanes.size(); ++lane) {
    std::ranges::transform(lanes[0], lanes[lane], lanes[0].begin(), std::plus<>());
  }
  StepExchange::Told told;
  Outcome outcome = group_.reduce(lanes[0], 0, deadline);
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
  WholeUpdate update;
  if (group_.position() == 0) {
    update = apply(lanes[0], told, batch->epoch, request.update);
  }
  auto applied = static_cast<std::byte>(update.applied ? 1 : 0);
  outcome = group_.broadcast(std::span(&applied, 1), 0, deadline);
  if (outcome.ok() && applied == std::byte{1}) {
    outcome = group_.broadcast(std::as_writable_bytes(replica_.values()), 0, deadline);
  }
  if (outcome.ok()) {
    outcome = exchange_.tell_culprit(update.culprit, deadline);
  }
  if (!outcome.ok()) {
    return lost_report(outcome);
  }
  settle_samples(batches, *batch, told, applied == std::byte{1});
  if (!update.culprit.empty()) {
    report.outcome = StepReport::Outcome::diverged;
    report.culprit = update.culprit;
  }
  return report;
}

void RootUpdate::visit_state(StateVisitor& visitor) {
  if (shard_) {
    shard_->visit_state(visitor);
  }
}

}  // namespace distbelief
