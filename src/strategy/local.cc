#include "strategy/local.h"

#include <cmath>

#include "strategy/whole_model.h"

namespace distbelief {

Local::Local(Replica& replica, const UpdateRule& rule)
    : replica_(replica), shard_(replica.table(), replica.table().everything(), rule, replica.values()) {}

StepReport Local::step(BatchStream& batches, const StepRequest& request) {
  const Batch* batch = batches.next();
  if (batch == nullptr) {
    return {.outcome = StepReport::Outcome::end_of_epoch};
  }
  StepReport report = {.sums = replica_.compute_gradient(*batch), .stop = request.stop};
  if (!std::isfinite(report.sums.loss)) {
    batches.dropped(batch->ids);
    report.outcome = StepReport::Outcome::diverged;
    report.culprit = replica_.find_nonfinite(*batch);
  } else {
    const WholeUpdate update =
        apply_to_whole(shard_, replica_, batch->epoch, replica_.gradients(), report.sums.rows, request.update);
    update.applied ? batches.applied(batch->ids) : batches.dropped(batch->ids);
    if (!update.culprit.empty()) {
      report.outcome = StepReport::Outcome::diverged;
      report.culprit = update.culprit;
    }
  }
  return report;
}

void Local::visit_state(StateVisitor& visitor) { shard_.visit_state(visitor); }

}  // namespace distbelief
