#include "train/leased_batches.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "data/loader.h"

namespace distbelief {

LeasedBatches::LeasedBatches(const Dataset& dataset, const Sampler& sampler, LeaseSource& leases,
                             const Options& options)
    : dataset_(dataset), sampler_(sampler), leases_(leases), options_(options) {
  if (const int threads = options.loader_threads.value_or(usual_loader_threads(dataset)); threads > 0) {
    ahead_.emplace(dataset_, sampler_, threads, options.prefetch);
  }
}

bool LeasedBatches::begin_lease() {
  const auto start = Clock::now();
  const Member::LeaseAnswer answer =
      leases_.request(unit_samples() * options_.units_per_lease, start + options_.patience);
  wait_seconds_ += seconds_since(start);
  asked_at_ = asked_at_.value_or(start);  // what comes late is the answer to a request before
  if (const auto* lease = std::get_if<Lease>(&answer)) {
    lease_seconds_ += seconds_since(*std::exchange(asked_at_, {}));
    const auto units = static_cast<std::uint64_t>((lease->count + unit_samples() - 1) / unit_samples());
    if (lease->next_push >= units) {
      inherited_ = *lease;
      return false;  // first the caller finishes what is on its way
    }
    lease_ = *lease;
    position_ = static_cast<std::int64_t>(lease->next_push) * unit_samples();
    planned_ = position_;
    units_of_lease_[lease->id] = units;
    return true;
  }
  finished_ = std::holds_alternative<Member::LeasesFinished>(answer);
  return false;
}

bool LeasedBatches::report_inherited() {
  const Lease lease = *std::exchange(inherited_, {});
  const std::int64_t units = (lease.count + unit_samples() - 1) / unit_samples();
  const std::int64_t begin = (units - 1) * unit_samples();
  const bool reported =
      options_.inherited({.id = {lease.id, static_cast<std::uint64_t>(units - 1)},
                          .samples = {.epoch = lease.epoch, .first = lease.first + begin, .count = lease.count - begin},
                          .loss = std::numeric_limits<double>::quiet_NaN()});
  if (reported) {
    leases_.complete(lease.id);
  }
  return reported;
}

const Batch* LeasedBatches::next() {
  if (inherited_ && !report_inherited()) {
    return nullptr;
  }
  if (!lease_ && (finished_ || !begin_lease())) {
    return nullptr;
  }
  if (unit_.ends) {  // a push begins; of what others began some blocks may have a part, which comes in single units
    push_units_ = lease_->begun ? 1 : options_.units_per_push;
    push_begin_ = position_;
  }
  const Clock::time_point start = Clock::now();
  if (ahead_) {
    plan();
    ahead_->take(batch_);
  } else {
    read_batch(dataset_, sampler_, place_at(position_), ids_, batch_);
  }
  wait_seconds_ += seconds_since(start);
  const std::int64_t seq = push_begin_ / unit_samples();
  const std::int64_t unit_begin = push_begin_;
  const std::int64_t unit_end = std::min(unit_begin + push_units_ * unit_samples(), lease_->count);
  const std::int64_t units = (unit_end - unit_begin + unit_samples() - 1) / unit_samples();
  unit_ = {.id = {lease_->id, static_cast<std::uint64_t>(seq), static_cast<std::uint64_t>(units)},
           .samples = {.epoch = lease_->epoch, .first = lease_->first + unit_begin, .count = unit_end - unit_begin},
           .ends = false,
           .low_water = lease_->low_water,
           .lease = {.epoch = lease_->epoch, .first = lease_->first, .count = lease_->count}};
  move_on(batch_.size());
  return &batch_;
}

bool LeasedBatches::take(Batch& batches, std::int64_t most) {
  check(most > 0, "at least one batch");
  const Clock::time_point start = Clock::now();
  std::unique_lock lock(mutex_);
  if (unit_.ends) {
    return false;
  }
  if (ahead_) {
    ahead_->take(batches);  // others who want batches wait with it, for those that come after
    move_on(batches.size());
  } else {
    const std::int64_t unit_end = unit_.samples.first + unit_.samples.count - unit_.lease.first;
    BatchPlace place = place_at(position_);
    const std::int64_t samples = std::min(most * options_.batch, unit_end - position_);
    place.size = static_cast<std::uint64_t>(samples);
    move_on(samples);
    lock.unlock();
    std::vector<std::uint64_t> ids;
    read_batch(dataset_, sampler_, place, ids, batches);
    lock.lock();
  }
  wait_seconds_ += seconds_since(start);
  return true;
}

BatchPlace LeasedBatches::place_at(std::int64_t position) const {
  return {.epoch = static_cast<std::uint64_t>(lease_->epoch),
          .position = static_cast<std::uint64_t>(lease_->first + position),
          .size = static_cast<std::uint64_t>(std::min(options_.batch, lease_->count - position))};
}

void LeasedBatches::plan() {
  while (planned_ < lease_->count && ahead_->has_room()) {
    ahead_->plan(place_at(planned_));
    planned_ = std::min(planned_ + options_.batch, lease_->count);
  }
}

void LeasedBatches::move_on(std::int64_t samples) {
  position_ += samples;
  unit_.ends = lease_->first + position_ == unit_.samples.first + unit_.samples.count;
  if (position_ == lease_->count) {
    lease_.reset();
  } else if (ahead_) {
    plan();
  }
}

void LeasedBatches::reported(const PushUnit& unit) {
  const auto found = units_of_lease_.find(unit.id.lease);
  check(found != units_of_lease_.end(), "what is reported was leased");
  if (unit.id.end() == found->second) {
    leases_.complete(unit.id.lease);
    units_of_lease_.erase(found);
  }
}

void LeasedBatches::set_amounts(std::int64_t units_per_lease, std::int64_t units_per_push) {
  options_.units_per_lease = std::max(units_per_lease, units_per_push);
  options_.units_per_push = units_per_push;
}

bool LeasedBatches::refused(const PushUnit& unit) {
  leases_.give_back(unit.id.lease, unit.id.seq);
  units_of_lease_.erase(unit.id.lease);
  if (lease_ && lease_->id == unit.id.lease) {
    lease_.reset();
    if (ahead_) {
      ahead_->drop();
    }
  }
  const bool is_void = unit_.id.lease == unit.id.lease && unit_.id.seq > unit.id.seq;
  unit_.ends = unit_.ends || is_void;
  return is_void;
}

}  // namespace distbelief
