#include "strategy/periodic_averaging.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "strategy/average_state.h"

namespace distbelief {
namespace {

/// Copies every array that it is shown into a place of its own, or back.
class AsideVisitor : public StateVisitor {
 public:
  enum class Way : std::uint8_t { aside, back };
  AsideVisitor(std::vector<Buffer>& places, Way way) : places_(places), way_(way) {}
  void floats(std::string_view /*name*/, std::span<float> values) override {
    if (next_ == places_.size()) {
      places_.emplace_back(values.size_bytes());
    }
    const std::span<float> place = places_[next_++].as<float>();
    way_ == Way::aside ? std::ranges::copy(values, place.begin()) : std::ranges::copy(place, values.begin());
  }
  void number(std::string_view /*name*/, std::uint64_t& /*value*/) override {}
  void numbers(std::string_view /*name*/, std::vector<std::uint64_t>& /*values*/) override {}

 private:
  std::vector<Buffer>& places_;
  const Way way_;
  std::size_t next_ = 0;
};

/// Puts a word before every name.
class PrefixVisitor : public StateVisitor {
 public:
  PrefixVisitor(StateVisitor& visitor, std::string prefix) : visitor_(visitor), prefix_(std::move(prefix)) {}
  void floats(std::string_view name, std::span<float> values) override { visitor_.floats(full(name), values); }
  void number(std::string_view name, std::uint64_t& value) override { visitor_.number(full(name), value); }
  void numbers(std::string_view name, std::vector<std::uint64_t>& values) override {
    visitor_.numbers(full(name), values);
  }

 private:
  std::string full(std::string_view name) const { return prefix_ + std::string(name); }
  StateVisitor& visitor_;
  const std::string prefix_;
};

}  // namespace

PeriodicAveraging::PeriodicAveraging(Replica& replica, const UpdateRule& rule, Group& group, const Options& options)
    : replica_(replica),
      group_(group),
      options_(options),
      shard_(replica.table(), replica.table().everything(), rule, replica.values()),
      exchange_(group, options.group.most_rows * kMeetEvery) {
  if (options.outer != nullptr) {
    centre_ = float_buffer(replica.table().size());
    outer_shard_.emplace(replica.table(), replica.table().everything(), *options.outer, centre_.as<float>());
  }
}

StepReport PeriodicAveraging::join() {
  StepReport report = copy_from_first(group_, replica_, *this, options_.group.patience);
  if (outer_shard_ && averages_ == 0) {
    std::ranges::copy(replica_.values(), centre_.as<float>().begin());
  }
  return report;
}

LossSums PeriodicAveraging::train_alone(const Batch& batch, const UpdateOptions& update) {
  if (!culprit_.empty()) {
    return {};
  }
  const std::vector<std::span<float>> lanes = replica_.gradient_memory(batch.size());
  const LossSums sums = compute_or_zero(replica_, batch, lanes, nullptr);
  if (!std::isfinite(sums.loss)) {
    culprit_ = replica_.find_nonfinite(batch);
    culprit_ = culprit_.empty() ? "the loss" : culprit_;
    return {};
  }
  // An empty share is a step too, so that all members' counters stay equal.
  const std::vector<std::span<const float>> parts(lanes.begin(), lanes.end());
  culprit_ = apply_to_whole(shard_, replica_, batch.epoch, parts, std::max<std::int64_t>(sums.rows, 1), update).culprit;
  if (PartLinks* const links = replica_.options().links; links != nullptr && !links->all(culprit_.empty())) {
    culprit_ = culprit_.empty() ? "another part of the network" : culprit_;  // all of them compute, or none
  }
  return sums;
}

StepReport PeriodicAveraging::meet(BatchStream& batches, Wishes wishes, Clock::time_point deadline) {
  StepExchange::Told told;
  const LossSums own = since_meeting_;
  LossSums telling = own;
  if (!culprit_.empty()) {
    telling.loss = std::numeric_limits<double>::quiet_NaN();
  }
  if (const Outcome outcome = exchange_.tell(telling, 0, ids_since_meeting_, wishes, deadline, told); !outcome.ok()) {
    return lost_report(outcome);
  }
  batches.leased_by_others(told.others);
  waiting_.insert(waiting_.end(), ids_since_meeting_.begin(), ids_since_meeting_.end());
  waiting_.insert(waiting_.end(), told.others.begin(), told.others.end());
  since_meeting_ = {};
  ids_since_meeting_.clear();
  StepReport report = {.sums = told.sums, .stop = told.wishes.stop, .regroup = told.wishes.regroup};
  if (!std::isfinite(told.sums.loss)) {
    report.outcome = StepReport::Outcome::diverged;
    report.culprit = culprit_;
    if (const Outcome outcome = exchange_.tell_culprit(report.culprit, deadline); !outcome.ok()) {
      return lost_report(outcome);
    }
    batches.dropped(waiting_);
    waiting_.clear();
    return report;
  }
  // What this member's steps reported already is not reported again.
  report.sums.loss -= own.loss;
  report.sums.correct -= own.correct;
  report.sums.rows -= own.rows;
  return report;
}

StepReport PeriodicAveraging::meet_and_average(BatchStream& batches, Wishes wishes, Clock::time_point deadline) {
  StepReport met = meet(batches, wishes, deadline);
  if (met.outcome == StepReport::Outcome::stepped) {
    if (const Outcome outcome = average(deadline); !outcome.ok()) {
      return lost_report(outcome);
    }
    batches.applied(waiting_);
    waiting_.clear();
  }
  return met;
}

Outcome PeriodicAveraging::average(Clock::time_point deadline) {
  if (options_.only_for_show) {
    AsideVisitor visitor(own_, AsideVisitor::Way::aside);
    visitor.floats("values", replica_.values());
    shard_.visit_state(visitor);
    is_aside_ = true;
  }
  Outcome outcome = average_state(group_, replica_.values(), shard_, deadline);
  if (outcome.ok()) {
    if (outer_shard_) {
      move_centre();
    }
    ++averages_;
    steps_since_average_ = 0;
  }
  return outcome;
}

void PeriodicAveraging::take_back_own() {
  if (is_aside_) {
    AsideVisitor visitor(own_, AsideVisitor::Way::back);
    visitor.floats("values", replica_.values());
    shard_.visit_state(visitor);
    is_aside_ = false;
  }
}

void PeriodicAveraging::move_centre() {
  const std::span<float> values = replica_.values();
  const std::span<float> centre = centre_.as<float>();
  const auto optimized = static_cast<std::size_t>(replica_.table().optimized_size());
  std::vector<float> way(values.begin(), values.end());  // averaged parameters: the mean is what was observed
  for (std::size_t i = 0; i < optimized; ++i) {
    way[i] = centre[i] - values[i];
  }
  const std::array<std::span<const float>, 1> parts = {way};
  const PushId push{0, outer_shard_->next_seq(0)};
  (void)outer_shard_->apply(push, parts, 1.0F, {.rate = options_.outer_rate}, outer_shard_->version());
  std::ranges::copy(values.subspan(optimized), centre.begin() + static_cast<std::ptrdiff_t>(optimized));
  std::ranges::copy(centre, values.begin());
}

StepReport PeriodicAveraging::step(BatchStream& batches, const StepRequest& request) {
  const Batch* batch = batches.next();
  if (batch == nullptr) {
    return {.outcome = StepReport::Outcome::end_of_epoch};
  }
  take_back_own();
  StepReport report = {.sums = train_alone(*batch, request.update)};
  since_meeting_ += report.sums;
  ids_since_meeting_.insert(ids_since_meeting_.end(), batch->ids.begin(), batch->ids.end());
  ++steps_;
  ++steps_since_average_;
  const bool averages = options_.every > 0 && steps_ % static_cast<std::uint64_t>(options_.every) == 0;
  if (!averages && steps_ % kMeetEvery != 0) {
    return report;
  }
  const Clock::time_point deadline = Clock::now() + options_.group.patience;
  const Wishes wishes = {request.stop, request.regroup};
  StepReport met = averages ? meet_and_average(batches, wishes, deadline) : meet(batches, wishes, deadline);
  met.sums += report.sums;
  return met;
}

StepReport PeriodicAveraging::settle(BatchStream& batches) {
  if (steps_since_average_ == 0) {
    return {};
  }
  return meet_and_average(batches, {}, Clock::now() + options_.group.patience);
}

void PeriodicAveraging::visit_state(StateVisitor& visitor) {
  shard_.visit_state(visitor);
  visitor.number("steps", steps_);
  visitor.number("averages", averages_);
  if (outer_shard_) {
    visitor.floats("centre", centre_.as<float>());
    PrefixVisitor outer(visitor, "outer_");
    outer_shard_->visit_state(outer);
  }
}

}  // namespace distbelief
