#include "strategy/hogwild_downpour.h"

#include <algorithm>
#include <array>

#include "base/check.h"

namespace distbelief {

HogwildDownpour::HogwildDownpour(Replica& replica, const UpdateRule& rule, ServerClient& client,
                                 const UnitExchange::Options& exchange, const HogwildLanes::Options& lanes)
    : ServedStrategy(client, exchange), replica_(replica), batch_(lanes.batch), lanes_(replica, rule, lanes) {
  if (std::ranges::any_of(replica.table().entries(), [](const auto& entry) { return entry.spec.row_floats > 0; })) {
    touched_.emplace(client.touched_runs(replica.table()));
  }
}

void HogwildDownpour::add(const SparseGradient& gradient, float factor, const LossSums& sums) {
  const std::scoped_lock lock(mutex_);
  if (touched_) {
    touched_->find(gradient.touched);
    exchange().add(*touched_, gradient.floats, factor, sums);
  } else {
    exchange().add(std::array{gradient.floats}, factor, sums, 1);
  }
}

StepReport HogwildDownpour::step(BatchStream& batches, const StepRequest& request) {
  const Batch* first = batches.next();
  if (first == nullptr) {
    return exchange().finish(batches);
  }
  const std::int64_t samples = batches.unit().samples.count;
  const std::int64_t updates = (samples + batch_ - 1) / batch_;
  bool fetched = false;
  if (UnitExchange::Ending ending = exchange().refresh(batches, replica_.values(), fetched)) {
    return *ending;
  }
  exchange().computing(static_cast<int>(updates));
  StepRequest own = request;
  own.update.rate *= exchange().rate_factor();
  own.most_updates = updates;
  StepReport report = lanes_.run(
      batches, *first, own, Clock::time_point::max(),
      [this](const SparseGradient& gradient, float factor, const LossSums& sums) { add(gradient, factor, sums); });
  if (report.outcome != StepReport::Outcome::stepped) {
    return report;
  }
  const PushUnit unit = batches.unit();
  check(unit.ends && report.sums.rows == samples, "all of the unit was computed");
  if (UnitExchange::Ending ending = exchange().push(batches, unit)) {
    if (ending->updates > 0) {
      ending->sums = report.sums;
    }
    return *ending;
  }
  return report;
}

}  // namespace distbelief
