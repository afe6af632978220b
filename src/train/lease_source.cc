#include "train/lease_source.h"

namespace distbelief {

void SharedLeases::plan(const LeaseTable::Options& options) {
  const std::scoped_lock lock(mutex_);
  table_.emplace(options);
  changed_.notify_all();
}

Member::LeaseAnswer SharedLeases::request(std::uint64_t owner, std::int64_t samples, Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  while (true) {
    if (table_) {
      const LeaseTable::Answer answer = table_->request(owner, samples);
      if (const auto* lease = std::get_if<Lease>(&answer)) {
        Lease given = *lease;
        given.low_water = table_->low_water();
        return given;
      }
      if (std::holds_alternative<LeaseTable::Finished>(answer)) {
        return Member::LeasesFinished{};
      }
    }
    if (changed_.wait_until(lock, deadline) == std::cv_status::timeout) {
      return Member::NoLease{};
    }
  }
}

void SharedLeases::leave(std::uint64_t owner) {
  const std::scoped_lock lock(mutex_);
  if (table_) {
    table_->orphan(owner);
    table_->note_progress(owner, {});
    table_->release(owner);
  }
  changed_.notify_all();
}

void SharedLeases::complete(std::uint64_t owner, std::uint64_t lease) {
  const std::scoped_lock lock(mutex_);
  (void)table_->complete(owner, lease);
  changed_.notify_all();
}

void SharedLeases::give_back(std::uint64_t owner, std::uint64_t lease, std::uint64_t next_push) {
  const std::scoped_lock lock(mutex_);
  (void)table_->give_back(owner, lease, next_push);
  changed_.notify_all();
}

}  // namespace distbelief
