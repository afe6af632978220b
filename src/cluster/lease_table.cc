#include "cluster/lease_table.h"

#include <algorithm>

#include "base/check.h"

namespace distbelief {

LeaseTable::LeaseTable(const Options& options)
    : options_(options), epoch_(options.first_epoch), position_(options.first_position), next_id_(options.first_id) {
  check(options.samples_per_epoch >= 0 && options.first_epoch >= 0, "a lease table of a negative size");
  check(position_ >= 0 && (position_ == 0 || position_ < options.samples_per_epoch), "a position in the first epoch");
  for (const Lease& lease : options.returned) {
    check(lease.id < next_id_, "leases that come back have numbers of their own");
    returned_[lease.id] = {.lease = lease};
  }
  for (const auto& [owner, lease] : options.held) {
    check(lease.id < next_id_, "leases that are held have numbers of their own");
    open_[lease.id] = {.lease = lease, .owner = owner};
    if (options_.warm_samples > 0) {
      warm_owner_ = owner;
      warm_given_ += lease.count;
    }
  }
}

bool LeaseTable::next_contains(double share, std::int64_t samples) const {
  const std::int64_t all = options_.samples_per_epoch * options_.epochs;
  const auto place = std::min(static_cast<std::int64_t>(share * static_cast<double>(all)), all - 1);
  const std::int64_t first = epoch_ * options_.samples_per_epoch + position_;
  return !warming() && first <= place && place < first + std::min(samples, options_.samples_per_epoch - position_);
}

bool LeaseTable::has_back_for(std::uint64_t owner) const {
  return std::ranges::any_of(returned_, [&](const auto& entry) { return entry.second.giver != owner; });
}

LeaseTable::Answer LeaseTable::request(std::uint64_t owner, std::int64_t samples) {
  check(samples > 0, "a lease of no samples");
  const bool warming = this->warming();
  if (warming) {
    if (warm_owner_.value_or(owner) != owner || warm_given_ >= options_.warm_samples) {
      return Wait{};
    }
    warm_owner_ = owner;
    samples = std::min(samples, options_.warm_samples - warm_given_);
  }
  Lease lease;
  auto back = std::ranges::find_if(returned_, [&](const auto& entry) { return entry.second.giver != owner; });
  if (back == returned_.end() && !returned_.empty() &&
      (next_epoch_done() || returned_.begin()->second.lease.epoch < epoch_)) {
    back = returned_.begin();
  }
  if (back != returned_.end()) {
    lease = back->second.lease;
    lease.begun = true;
    returned_.erase(back);
  } else if (next_epoch_done()) {
    return finished() ? Answer(Finished{}) : Answer(Wait{});
  } else {
    lease = {.id = next_id_++,
             .epoch = epoch_,
             .first = position_,
             .count = std::min(samples, options_.samples_per_epoch - position_)};
    position_ += lease.count;
    if (position_ == options_.samples_per_epoch) {
      position_ = 0;
      ++epoch_;
    }
  }
  open_[lease.id] = {.lease = lease, .owner = owner};
  warm_given_ += warming ? lease.count : 0;
  return lease;
}

bool LeaseTable::is_with(std::uint64_t owner, std::uint64_t id) const {
  const auto found = open_.find(id);
  return found != open_.end() && found->second.owner == owner && !found->second.orphaned;
}

bool LeaseTable::complete(std::uint64_t owner, std::uint64_t id) {
  if (!is_with(owner, id)) {
    return false;
  }
  warm_done_ += open_.at(id).lease.count;
  open_.erase(id);
  return true;
}

bool LeaseTable::give_back(std::uint64_t owner, std::uint64_t id, std::uint64_t next_push) {
  if (!is_with(owner, id)) {
    return false;
  }
  Lease lease = open_.at(id).lease;
  lease.next_push = next_push;
  warm_given_ -= warming() ? lease.count : 0;
  returned_[id] = {.lease = lease, .giver = owner};
  open_.erase(id);
  return true;
}

void LeaseTable::orphan(std::uint64_t owner) {
  for (auto& [id, open] : open_) {
    open.orphaned = open.orphaned || open.owner == owner;
  }
  if (warm_owner_ == owner) {
    warm_owner_.reset();
  }
}

void LeaseTable::note_progress(std::uint64_t owner, const std::map<std::uint64_t, std::uint64_t>& next_pushes) {
  for (auto& [id, open] : open_) {
    if (open.owner == owner && open.orphaned) {
      const auto found = next_pushes.find(id);
      const std::uint64_t next_push = found == next_pushes.end() ? 0 : found->second;
      open.lowest_next_push = std::min(open.lowest_next_push.value_or(next_push), next_push);
    }
  }
}

void LeaseTable::release(std::uint64_t owner) {
  for (auto at = open_.begin(); at != open_.end();) {
    if (at->second.owner != owner || !at->second.orphaned) {
      ++at;
      continue;
    }
    Lease lease = at->second.lease;
    warm_given_ -= warming() ? lease.count : 0;
    lease.next_push = at->second.lowest_next_push.value_or(lease.next_push);
    returned_[lease.id] = {.lease = lease};
    at = open_.erase(at);
  }
}

std::uint64_t LeaseTable::low_water() const {
  std::uint64_t lowest = next_id_;
  if (!open_.empty()) {
    lowest = std::min(lowest, open_.begin()->first);
  }
  if (!returned_.empty()) {
    lowest = std::min(lowest, returned_.begin()->first);
  }
  return lowest;
}

}  // namespace distbelief
