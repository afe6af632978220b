#include "strategy/portion_worker.h"

#include <cmath>
#include <utility>

namespace distbelief {

PortionWorker::PortionWorker(Replica& replica, ServerClient& client, Clock::duration patience)
    : replica_(replica), client_(client), patience_(patience) {}

Outcome PortionWorker::next(std::optional<Work>& work, Clock::duration nap) {
  work.reset();
  if (client_.asking()) {
    // Asked for while the unit before was computed: the answer is there. Or it waits for something to do.
    Outcome outcome = client_.wait_asked(work, pushed_ || done_ ? deadline() : Clock::now() + nap);
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
  client_.begin_asking(true);
  Outcome outcome = client_.wait_asked(work, Clock::now() + nap);
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
    evaluation_ = work.evaluation;
  }
  client_.begin_asking(false);
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
