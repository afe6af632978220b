#include "strategy/unit_exchange.h"

#include <utility>

#include "base/clock.h"
#include "strategy/step_exchange.h"

namespace distbelief {

UnitExchange::UnitExchange(ServerClient& client, const Options& options)
    : client_(client), options_(options), since_fetch_(options.fetch_every) {}

void UnitExchange::set_exchange(int fetch_every, bool prefetch) {
  options_.fetch_every = fetch_every;
  options_.prefetch = prefetch;
}

void UnitExchange::begin_fetch(const TouchedRuns* touched) {
  const auto freshness =
      std::exchange(whole_, false) ? ServerClient::Freshness::all_newer : ServerClient::Freshness::any;
  if (fetches_touched()) {
    client_.begin_fetch_touched(*touched, freshness);
    held_ = Held::some;
  } else {
    client_.begin_fetch(freshness);
    held_ = Held::all;
  }
}

UnitExchange::Ending UnitExchange::refresh(BatchStream& batches, std::span<float> values, bool& came,
                                           const TouchedRuns* touched) {
  came = false;
  touched_ = touched != nullptr;
  if (!values_due()) {
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
      begin_fetch(touched);
    }
  }
  if (client_.fetching()) {
    const Outcome outcome = client_.wait_fetched(deadline());
    wait_seconds_ += seconds_since(start);
    if (!outcome.ok()) {
      return lost_report(outcome);
    }
  }
  client_.take(values);
  if (options_.fetched) {
    options_.fetched(values);
  }
  since_fetch_ = 0;
  came = true;
  if (std::exchange(fetch_is_old_, false)) {
    since_fetch_ = options_.fetch_every;
    return refresh(batches, values, came, touched);
  }
  return {};
}

void UnitExchange::computing(int batches) {
  since_fetch_ += batches;
  if (options_.prefetch && since_fetch_ >= options_.fetch_every && !client_.fetching()) {
    client_.begin_fetch();
  }
}

void UnitExchange::add(std::span<const std::span<const float>> parts, float factor, const LossSums& sums, int batches) {
  client_.add(parts, factor);
  batches_ += batches;
  sums_ += sums;
}

void UnitExchange::add(const TouchedRuns& touched, std::span<const float> gradient, float factor,
                       const LossSums& sums) {
  client_.add_touched(touched, gradient, factor);
  batches_ += 1;
  sums_ += sums;
}

UnitExchange::Ending UnitExchange::push(BatchStream& batches, const PushUnit& unit) {
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
  return {};
}

UnitExchange::Ending UnitExchange::wait_for_flight(BatchStream& batches) {
  if (!flight_) {
    return {};
  }
  const Clock::time_point start = Clock::now();
  ServerClient::PushReport report = client_.wait_pushed(deadline());
  wait_seconds_ += seconds_since(start);
  if (!report.outcome.ok()) {
    return lost_report(report.outcome);
  }
  if (options_.agree) {
    options_.agree(report);
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
    case ReplyHead::Status::moved:  // which the client asks others about
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

void UnitExchange::want_new_values() {
  since_fetch_ = options_.fetch_every;
  fetch_is_old_ = client_.fetching();
}

UnitExchange::Ending UnitExchange::give_back(BatchStream& batches, const PushUnit& unit) {
  want_new_values();
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
  return StepReport{.updates = 0};
}

StepReport UnitExchange::finish(BatchStream& batches) {
  want_new_values();  // others go on meanwhile
  StepReport report = settle(batches);
  whole_ = false;
  if (report.outcome == StepReport::Outcome::stepped && !report.stop) {
    report = rest();
  }
  return report;
}

StepReport UnitExchange::settle(BatchStream& batches) {
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

StepReport UnitExchange::rest() {
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

void UnitExchange::tell_trouble(BatchStream& batches, const std::string& words,
                                const std::optional<PushUnit>& dropped) {
  (void)settle(batches);
  UnitReport unit;
  if (dropped) {
    unit = {.id = dropped->id, .samples = dropped->samples, .late = 1};
  }
  (void)client_.report(unit, words, deadline());
}

}  // namespace distbelief
