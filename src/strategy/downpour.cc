#include "strategy/downpour.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "base/clock.h"
#include "params/gradient_norm.h"
#include "strategy/step_exchange.h"

namespace distbelief {

Downpour::Downpour(Replica& replica, const UpdateRule& rule, ServerClient& client, const Options& options)
    : replica_(replica), rule_(rule), client_(client), options_(options), since_fetch_(options.fetch_every) {
  set_exchange(options.fetch_every, options.prefetch);
  if (replica.options().gradient_rows == GradientRows::touched) {
    touched_.emplace(client.touched_runs(replica.table()));
  }
}

void Downpour::set_exchange(int fetch_every, bool prefetch) {
  options_.fetch_every = fetch_every;
  options_.prefetch = prefetch;
  if (fetch_every > 1 && !own_) {
    own_.emplace(replica_.table(), replica_.table().everything(), rule_, replica_.values());
  }
}

StepReport Downpour::step(BatchStream& batches, const StepRequest& request) {
  const Batch* batch = batches.next();
  if (batch == nullptr) {
    since_fetch_ = options_.fetch_every;  // others go on meanwhile
    StepReport report = settle(batches);
    whole_ = false;
    if (report.outcome == StepReport::Outcome::stepped && !report.stop) {
      report = rest();
    }
    return report;
  }
  const PushUnit unit = batches.unit();
  if (touched_) {
    touched_->find(replica_.prepare(*batch, 0, batch->size()));
  }
  if (Ending ending = refresh(batches)) {
    return *ending;
  }
  if (options_.prefetch && since_fetch_ + 1 >= options_.fetch_every && !client_.fetching()) {
    client_.begin_fetch();
  }
  StepReport report = {.sums = compute(*batch), .stop = request.stop};
  ++since_fetch_;
  if (!std::isfinite(report.sums.loss)) {
    batches.dropped(batch->ids);
    report.outcome = StepReport::Outcome::diverged;
    report.culprit = touched_ ? replica_.find_nonfinite_prepared() : replica_.find_nonfinite(*batch);
    return report;
  }
  add(clipping(report.sums, request.update.clip_norm));
  ++batches_;
  sums_ += report.sums;
  if (own_ && options_.fetch_every > 1) {
    step_locally(unit, report.sums, request.update);
  }
  if (unit.ends) {
    if (Ending ending = push(batches, unit)) {
      if (ending->updates > 0) {
        ending->sums = report.sums;
      }
      return *ending;
    }
  }
  return report;
}

StepReport Downpour::rest() {
  if (options_.whole_steps && !idle_) {
    const ServerClient::PushReport report = client_.idle(deadline());
    if (!report.outcome.ok()) {
      return lost_report(report.outcome);
    }
    if (report.status == ReplyHead::Status::nonfinite) {
      return {.outcome = StepReport::Outcome::diverged, .culprit = "a parameter"};
    }
    idle_ = true;
  }
  return {.outcome = StepReport::Outcome::end_of_epoch};
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

LossSums Downpour::compute(const Batch& batch) {
  return touched_ ? replica_.compute_prepared() : replica_.compute_gradient(batch);
}

void Downpour::add(float factor) {
  if (touched_) {
    client_.add_touched(*touched_, replica_.gradients()[0], factor);
  } else {
    client_.add(replica_.gradients(), factor);
  }
}

void Downpour::begin_fetch() {
  const auto freshness =
      std::exchange(whole_, false) ? ServerClient::Freshness::all_newer : ServerClient::Freshness::any;
  if (fetches_touched()) {
    client_.begin_fetch_touched(*touched_, freshness);
    held_ = Held::some;
  } else {
    client_.begin_fetch(freshness);
    held_ = Held::all;
  }
}

Downpour::Ending Downpour::refresh(BatchStream& batches) {
  if (since_fetch_ < options_.fetch_every && held_ == Held::all) {
    return {};
  }
  Clock::time_point start = Clock::now();
  if (!client_.fetching()) {
    values_came_ = false;
    if (Ending ending = wait_for_flight(batches)) {
      return ending;
    }
    start = Clock::now();
    if (!values_came_) {
      begin_fetch();
    }
  }
  if (client_.fetching()) {
    const Outcome outcome = client_.wait_fetched(deadline());
    wait_seconds_ += seconds_since(start);
    if (!outcome.ok()) {
      return lost_report(outcome);
    }
  }
  client_.take(replica_.values());
  if (!unpushed_.empty()) {
    std::ranges::transform(replica_.values(), unpushed_, replica_.values().begin(), std::plus<>());
  }
  since_fetch_ = 0;
  return {};
}

Downpour::Ending Downpour::push(BatchStream& batches, const PushUnit& unit) {
  if (Ending ending = wait_for_flight(batches)) {
    return ending;
  }
  ServerClient::Unit pushed = {.id = unit.id,
                               .samples = unit.samples,
                               .scale = static_cast<float>(batches_) / static_cast<float>(sums_.rows),
                               .low_water = unit.low_water,
                               .lease = unit.lease,
                               .wants_values = !options_.prefetch && !options_.whole_steps && !fetches_touched() &&
                                               since_fetch_ >= options_.fetch_every,
                               .done = {}};
  flight_ = Flight{.unit = unit, .sums = sums_, .reports = {}};
  if (acknowledged_) {
    pushed.done = acknowledged_->report;
    flight_->reports = acknowledged_->unit;
    acknowledged_.reset();
  }
  if (const Outcome outcome = client_.push(pushed, deadline()).outcome; !outcome.ok()) {
    return lost_report(outcome);
  }
  values_come_ = pushed.wants_values;
  idle_ = false;
  batches_ = 0;
  sums_ = {};
  unpushed_.clear();
  return {};
}

Downpour::Ending Downpour::wait_for_flight(BatchStream& batches) {
  if (!flight_) {
    return {};
  }
  const Clock::time_point start = Clock::now();
  const ServerClient::PushReport report = client_.wait_pushed(deadline());
  wait_seconds_ += seconds_since(start);
  if (!report.outcome.ok()) {
    return lost_report(report.outcome);
  }
  const Flight flight = *std::exchange(flight_, {});
  values_came_ = std::exchange(values_come_, false) && report.status != ReplyHead::Status::late;
  switch (report.status) {
    case ReplyHead::Status::done:
    case ReplyHead::Status::duplicate:
    case ReplyHead::Status::late:
      break;
    case ReplyHead::Status::early:
    case ReplyHead::Status::fenced:
      return StepReport{.outcome = StepReport::Outcome::group_lost,
                        .culprit = report.status == ReplyHead::Status::fenced
                                       ? "the servers take nothing more from this worker, which was given up"
                                       : "a server lacks a push that came before"};
    case ReplyHead::Status::nonfinite:
      return StepReport{.outcome = StepReport::Outcome::diverged, .sums = flight.sums, .culprit = "a parameter"};
    case ReplyHead::Status::over:
    case ReplyHead::Status::damaged:
      return StepReport{.stop = true};
  }
  if (flight.reports) {
    batches.reported(*flight.reports);
  }
  if (report.status == ReplyHead::Status::late) {
    return give_back(batches, flight.unit);
  }
  whole_ = options_.whole_steps && report.whole;
  acknowledged_ = Acknowledged{.unit = flight.unit,
                               .report = {.id = flight.unit.id,
                                          .samples = flight.unit.samples,
                                          .loss = flight.sums.loss,
                                          .correct = flight.sums.correct,
                                          .staleness = report.staleness,
                                          .staleness_most = report.staleness_most}};
  return {};
}

Downpour::Ending Downpour::give_back(BatchStream& batches, const PushUnit& unit) {
  since_fetch_ = options_.fetch_every;
  const ServerClient::PushReport report =  // before anybody else tells of these samples
      client_.report({.id = unit.id, .samples = unit.samples, .late = 1}, "", deadline());
  if (!report.outcome.ok()) {
    return lost_report(report.outcome);
  }
  if (!batches.refused(unit)) {
    return {};
  }
  client_.discard();
  batches_ = 0;
  sums_ = {};
  unpushed_.clear();
  return StepReport{.updates = 0};
}

StepReport Downpour::settle(BatchStream& batches) {
  if (Ending ending = wait_for_flight(batches)) {
    return *ending;
  }
  if (acknowledged_) {
    const ServerClient::PushReport report = client_.report(acknowledged_->report, "", deadline());
    if (!report.outcome.ok()) {
      return lost_report(report.outcome);
    }
    batches.reported(acknowledged_->unit);
    acknowledged_.reset();
  }
  return {};
}

void Downpour::tell_trouble(BatchStream& batches, const std::string& words) {
  (void)wait_for_flight(batches);
  (void)client_.report(acknowledged_ ? acknowledged_->report : UnitReport{}, words, deadline());
}

void Downpour::step_locally(const PushUnit& unit, const LossSums& sums, const UpdateOptions& update) {
  const std::span<float> values = replica_.values();
  const bool keeps = !unit.ends;  // what is pushed now comes back with a fetch
  std::vector<float> before;
  if (keeps) {
    before.assign(values.begin(), values.end());
    unpushed_.resize(values.size());
  }
  UpdateOptions own = update;
  own.rate *= client_.rate_factor();
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
