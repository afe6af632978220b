#include "strategy/hogwild_downpour.h"

#include <array>

#include "base/check.h"

namespace distbelief {

HogwildDownpour::HogwildDownpour(Replica& replica, const UpdateRule& rule, ServerClient& client,
                                 const UnitExchange::Options& exchange, const HogwildLanes::Options& lanes)
    : ServedStrategy(client, exchange),
      replica_(replica),
      batch_(lanes.batch),
      lanes_(replica, rule, lanes),
      gradient_(replica.table()) {}

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
  StepReport report =
      lanes_.run(batches, *first, own, Clock::time_point::max(),
                 [this](const SparseGradient& gradient, float factor) { gradient_.add(gradient, factor); });
  if (report.outcome != StepReport::Outcome::stepped) {
    return report;
  }
  const PushUnit unit = batches.unit();
  check(unit.ends && report.sums.rows == samples, "all of the unit was computed");
  exchange().add(std::array{gradient_.total()}, 1, report.sums, static_cast<int>(updates));
  gradient_.clear();
  if (UnitExchange::Ending ending = exchange().push(batches, unit)) {
    if (ending->updates > 0) {
      ending->sums = report.sums;
    }
    return *ending;
  }
  return report;
}

}  // namespace distbelief
