#include "server/portion_table.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace distbelief {
namespace {

constexpr std::int64_t kUnitsLeftForEach = 2;  // a unit is at most this part of what is left for each worker
constexpr int kMostOwners = 2;                 // of a unit

}  // namespace

void PortionTable::begin(std::int64_t samples, int workers) {
  check(samples > 0 && workers > 0, "an evaluation is of samples, by workers");
  samples_ = samples;
  workers_ = workers;
  const std::int64_t portions = (samples + options_.portion - 1) / options_.portion;
  holders_.resize(static_cast<std::size_t>(portions), kNobody);  // those of before stay: they may hold the samples
  free_.assign(holders_.size(), 1);
  undone_ = free_count_ = portions;
  done_before_ = counts_.done;
  std::erase_if(units_, [](const auto& entry) { return entry.second.owners.empty(); });
  for (auto& [id, handed] : units_) {
    handed.open = false;  // what still comes is too late
  }
  first_id_ = next_id_;
}

std::optional<PortionTable::Unit> PortionTable::request(std::uint64_t owner, bool ahead) {
  if (std::optional<Unit> returned = take_returned(owner)) {
    return returned;
  }
  const std::int64_t share = free_count_ / (kUnitsLeftForEach * workers_);
  if (free_count_ > 0 && (!ahead || share > 0)) {
    const Unit unit = cut_free(owner, std::clamp<std::int64_t>(share, 1, options_.most_portions));
    return hand_out(units_[unit.id] = {.unit = unit}, owner);
  }
  return !ahead && options_.backups ? take_backup(owner) : std::nullopt;
}

PortionTable::Unit PortionTable::hand_out(Handed& handed, std::uint64_t owner) {
  handed.owners.push_back(owner);
  counts_.handed_out += handed.unit.samples;
  return handed.unit;
}

PortionTable::Unit PortionTable::cut_free(std::uint64_t owner, std::int64_t most) {
  // What it had; else what nobody who lives had; else anybody's, from the end, where its holder comes last.
  std::int64_t first = -1;
  std::int64_t unheld = -1;
  std::int64_t last = -1;
  for (std::int64_t i = 0; i < portions() && first < 0; ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (free_[at] == 0) {
      continue;
    }
    last = i;
    if (holders_[at] == owner) {
      first = i;
    } else if (holders_[at] == kNobody && unheld < 0) {
      unheld = i;
    }
  }
  if (first < 0) {
    first = unheld >= 0 ? unheld : last;
  }
  const std::uint64_t holder = holders_[static_cast<std::size_t>(first)];
  Unit unit = {.id = next_id_++, .first_portion = first};
  while (unit.portions < most && first + unit.portions < portions()) {
    const auto at = static_cast<std::size_t>(first + unit.portions);
    if (free_[at] == 0 || holders_[at] != holder) {
      break;
    }
    free_[at] = 0;
    holders_[at] = owner;
    ++unit.portions;
  }
  free_count_ -= unit.portions;
  unit.first_sample = unit.first_portion * options_.portion;
  unit.samples = std::min(unit.portions * options_.portion, samples_ - unit.first_sample);
  counts_.moved += holder != owner && holder != kNobody ? unit.samples : 0;
  return unit;
}

std::optional<PortionTable::Unit> PortionTable::take_returned(std::uint64_t owner) {
  for (auto& [id, handed] : units_) {
    if (handed.open && handed.owners.empty()) {
      return hand_out(handed, owner);
    }
  }
  return std::nullopt;
}

std::optional<PortionTable::Unit> PortionTable::take_backup(std::uint64_t owner) {
  for (auto& [id, handed] : units_) {
    if (handed.open && std::ssize(handed.owners) < kMostOwners && !std::ranges::count(handed.owners, owner)) {
      counts_.backups += handed.unit.samples;
      Unit unit = hand_out(handed, owner);
      unit.backup = true;
      return unit;
    }
  }
  return std::nullopt;
}

PortionTable::Completed PortionTable::complete(std::uint64_t owner, std::uint64_t id) {
  const auto found = units_.find(id);
  if (found == units_.end() || std::erase(found->second.owners, owner) == 0) {
    return Completed::unknown;
  }
  Handed& handed = found->second;
  const Unit unit = handed.unit;
  const bool counts = std::exchange(handed.open, false);
  if (handed.owners.empty()) {
    units_.erase(found);
  }
  if (!counts) {
    counts_.again += unit.samples;
    return Completed::again;
  }
  for (std::int64_t i = 0; i < unit.portions; ++i) {
    holders_[static_cast<std::size_t>(unit.first_portion + i)] = owner;
  }
  undone_ -= unit.portions;
  counts_.done += unit.samples;
  return Completed::first;
}

void PortionTable::lose(std::uint64_t owner) {
  for (auto at = units_.begin(); at != units_.end();) {
    Handed& handed = at->second;
    counts_.lost += static_cast<std::int64_t>(std::erase(handed.owners, owner)) * handed.unit.samples;
    at = handed.owners.empty() && !handed.open ? units_.erase(at) : std::next(at);
  }
  std::ranges::replace(holders_, owner, kNobody);
}

}  // namespace distbelief
