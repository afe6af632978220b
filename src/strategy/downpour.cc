#include "strategy/downpour.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "params/gradient_norm.h"
#include "strategy/whole_model.h"

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
  if (UnitExchange::Ending ending = refresh(batches)) {
    steps_are_pushed_ = true;
    return *ending;
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
    steps_are_pushed_ = true;
    if (UnitExchange::Ending ending = exchange().push(batches, unit)) {
      if (ending->updates > 0) {
        ending->sums = report.sums;
      }
      return *ending;
    }
  }
  return report;
}

UnitExchange::Ending Downpour::refresh(BatchStream& batches) {
  const std::span<float> values = replica_.values();
  const bool keeps = !steps_are_pushed_ && exchange().values_due();
  if (keeps) {  // to what was fetched before: blocks that have not changed since do not come again
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float change = values[i] - before_steps_[i];
      values[i] = std::exchange(before_steps_[i], change);
    }
  }
  bool fetched = false;
  UnitExchange::Ending ending = exchange().refresh(batches, values, fetched, touched_ ? &*touched_ : nullptr);
  if (keeps) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float change = std::exchange(before_steps_[i], values[i]);
      values[i] += change;
    }
  }
  return ending;
}

float Downpour::clipping(const LossSums& sums, float clip_norm) const {
  if (clip_norm <= 0) {
    return 1;
  }
  if (replica_.options().links != nullptr) {
    const double scale = 1 / static_cast<double>(sums.rows);
    return static_cast<float>(clipping_factor(replica_, replica_.gradients(), scale, clip_norm));
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
  if (steps_are_pushed_ && !unit.ends) {  // what ends a unit is pushed now, and comes back with a fetch
    before_steps_.assign(replica_.values().begin(), replica_.values().end());
    steps_are_pushed_ = false;
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
}

}  // namespace distbelief
