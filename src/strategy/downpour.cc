#include "strategy/downpour.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "params/gradient_norm.h"

namespace distbelief {

Downpour::Downpour(Replica& replica, const UpdateRule& rule, ServerClient& client, const Options& options)
    : ServedStrategy(client, options), replica_(replica), rule_(rule) {
  if (replica.options().gradient_rows == GradientRows::touched) {
    touched_.emplace(client.touched_runs(replica.table()));
  }
}

StepReport Downpour::step(BatchStream& batches, const StepRequest& request) {
  const Batch* batch = batches.next();
  if (batch == nullptr) {
    return exchange().finish(batches);
  }
  const PushUnit unit = batches.unit();
  if (touched_) {
    touched_->find(replica_.prepare(*batch, 0, batch->size()));
  }
  bool fetched = false;
  if (UnitExchange::Ending ending =
          exchange().refresh(batches, replica_.values(), fetched, touched_ ? &*touched_ : nullptr)) {
    unpushed_.clear();
    return *ending;
  }
  if (fetched && !unpushed_.empty()) {
    std::ranges::transform(replica_.values(), unpushed_, replica_.values().begin(), std::plus<>());
  }
  exchange().computing(1);
  StepReport report = {.sums = touched_ ? replica_.compute_prepared() : replica_.compute_gradient(*batch),
                       .stop = request.stop};
  if (!std::isfinite(report.sums.loss)) {
    batches.dropped(batch->ids);
    report.outcome = StepReport::Outcome::diverged;
    report.culprit = touched_ ? replica_.find_nonfinite_prepared() : replica_.find_nonfinite(*batch);
    return report;
  }
  const float factor = clipping(report.sums, request.update.clip_norm);
  if (touched_) {
    exchange().add(*touched_, replica_.gradients()[0], factor, report.sums);
  } else {
    exchange().add(replica_.gradients(), factor, report.sums, 1);
  }
  if (exchange().fetch_every() > 1) {
    step_locally(unit, report.sums, request.update);
  }
  if (unit.ends) {
    unpushed_.clear();
    if (UnitExchange::Ending ending = exchange().push(batches, unit)) {
      if (ending->updates > 0) {
        ending->sums = report.sums;
      }
      return *ending;
    }
  }
  return report;
}

float Downpour::clipping(const LossSums& sums, float clip_norm) const {
  if (clip_norm <= 0) {
    return 1;
  }
  const double length =
      touched_ ? touched_->norm(replica_.gradients()[0]) : gradient_norm(replica_.table(), replica_.gradients());
  const double norm = length / static_cast<double>(sums.rows);
  return norm > clip_norm ? static_cast<float>(clip_norm / norm) : 1.0F;
}

void Downpour::step_locally(const PushUnit& unit, const LossSums& sums, const UpdateOptions& update) {
  if (!own_) {
    own_.emplace(replica_.table(), replica_.table().everything(), rule_, replica_.values());
  }
  const std::span<float> values = replica_.values();
  const bool keeps = !unit.ends;  // what is pushed now comes back with a fetch
  std::vector<float> before;
  if (keeps) {
    before.assign(values.begin(), values.end());
    unpushed_.resize(values.size());
  }
  UpdateOptions own = update;
  own.rate *= exchange().rate_factor();
  const PushId step = {1, own_steps_++};
  const float scale = 1.0F / static_cast<float>(sums.rows);
  if (touched_) {
    own_floats_.clear();
    for (const FloatRun& run : touched_->flat()) {
      const float* from = replica_.gradients()[0].data() + run.begin;
      own_floats_.insert(own_floats_.end(), from, from + run.count);
    }
    (void)own_->apply(step, {.places = {.runs = touched_->flat()}, .floats = own_floats_}, scale, own, {});
  } else {
    (void)own_->apply(step, replica_.gradients(), scale, own, {});
  }
  if (keeps) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      unpushed_[i] += values[i] - before[i];
    }
  }
}

}  // namespace distbelief
