#include "strategy/portion_worker.h"

#include <cmath>
#include <utility>

namespace distbelief {

PortionWorker::PortionWorker(Replica& replica, ServerClient& client, Options options)
    : replica_(replica), client_(client), options_(std::move(options)) {}

void PortionWorker::begin_asking(bool waits) {
  if (options_.asks) {
    client_.begin_asking(waits);
  }
  asking_ = true;
}

Outcome PortionWorker::wait_asked(std::optional<Work>& work, Clock::time_point deadline) {
  Outcome outcome;
  if (options_.asks) {
    outcome = client_.wait_asked(work, deadline);
  }
  if (options_.share) {
    Told told = {.outcome = outcome.kind, .is_work = work.has_value(), .work = work.value_or(Work{})};
    options_.share(told);
    if (!options_.asks) {
      work = told.is_work ? std::optional(told.work) : std::nullopt;
      outcome = {told.outcome, {}, told.outcome == Outcome::Kind::done ? "" : "who asks for work got no answer"};
    }
  }
  asking_ = !outcome.ok();
  return outcome;
}

Outcome PortionWorker::next(std::optional<Work>& work, Clock::duration nap) {
  work.reset();
  if (asking_) {
    // Asked for while the unit before was computed: the answer is there. Or it waits for something to do.
    Outcome outcome = wait_asked(work, pushed_ || done_ ? deadline() : Clock::now() + nap);
    if (outcome.kind == Outcome::Kind::timed_out && !pushed_ && !done_) {
      return {};
    }
    if (!outcome.ok() || work) {
      return outcome;
    }
  }
  if (Outcome outcome = settle(); !outcome.ok()) {
    return outcome;
  }
  begin_asking(true);
  Outcome outcome = wait_asked(work, Clock::now() + nap);
  return outcome.kind == Outcome::Kind::timed_out ? Outcome{} : outcome;
}

Outcome PortionWorker::begin(const Work& work) {
  sums_ = {};
  if (evaluation_ != work.evaluation) {
    client_.begin_fetch();
    if (Outcome outcome = client_.wait_fetched(deadline()); !outcome.ok()) {
      return outcome;
    }
    client_.take(replica_.values());
    if (options_.fetched) {
      options_.fetched(replica_.values());
    }
    evaluation_ = work.evaluation;
  }
  begin_asking(false);
  return {};
}

LossSums PortionWorker::add(const Batch& batch) {
  const LossSums sums = replica_.compute_gradient(batch);
  client_.add(replica_.gradients());
  sums_ += sums;
  return sums;
}

Outcome PortionWorker::push(const Work& work) {
  if (Outcome outcome = wait_pushed(); !outcome.ok()) {
    return outcome;
  }
  const UnitReport report = {
      .id = {work.unit, 0}, .samples = work.samples, .loss = sums_.loss, .correct = sums_.correct};
  if (!std::isfinite(sums_.loss)) {
    client_.discard();
    Outcome outcome = settle();
    done_ = report;
    return outcome;
  }
  const Outcome outcome = client_
                              .push({.id = report.id,
                                     .samples = work.samples,
                                     .scale = static_cast<float>(work.scale),
                                     .low_water = work.low_water,
                                     .lease = work.samples,
                                     .done = done_.value_or(UnitReport{})},
                                    deadline())
                              .outcome;
  done_.reset();
  pushed_ = report;
  return outcome;
}

Outcome PortionWorker::wait_pushed() {
  if (!pushed_) {
    return {};
  }
  ServerClient::PushReport report = client_.wait_pushed(deadline());
  if (report.outcome.ok() && options_.agree) {
    options_.agree(report);
  }
  if (report.outcome.ok()) {
    done_ = std::exchange(pushed_, {});
  }
  if (report.outcome.ok() && report.status == ReplyHead::Status::fenced) {
    report.outcome = {
        Outcome::Kind::peer_lost, {}, "the servers take nothing more from this worker, which was given up"};
  }
  return report.outcome;
}

Outcome PortionWorker::settle() {
  Outcome outcome = wait_pushed();
  if (outcome.ok() && done_) {
    outcome = client_.report(*std::exchange(done_, {}), "", deadline()).outcome;
  }
  return outcome;
}

}  // namespace distbelief
