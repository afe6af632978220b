#include "cluster/lease_table.h"

#include <algorithm>

#include "base/check.h"

namespace distbelief {

LeaseTable::LeaseTable(const Options& options)
    : options_(options), epoch_(options.first_epoch), next_id_(options.first_id) {
  check(options.samples_per_epoch >= 0 && options.first_epoch >= 0, "a lease table of a negative size");
}

LeaseTable::Answer LeaseTable::request(std::uint64_t owner, std::int64_t samples) {
  check(samples > 0, "a lease of no samples");
  Lease lease;
  if (!returned_.empty()) {
    lease = returned_.begin()->second;
    returned_.erase(returned_.begin());
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
  return lease;
}

bool LeaseTable::complete(std::uint64_t owner, std::uint64_t id) {
  const auto found = open_.find(id);
  if (found == open_.end() || found->second.owner != owner || found->second.orphaned) {
    return false;
  }
  open_.erase(found);
  return true;
}

void LeaseTable::orphan(std::uint64_t owner) {
  for (auto& [id, open] : open_) {
    open.orphaned = open.orphaned || open.owner == owner;
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
    lease.next_push = at->second.lowest_next_push.value_or(lease.next_push);
    returned_[lease.id] = lease;
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
