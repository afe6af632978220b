#include "train/leader_links.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "params/parameter_part.h"

namespace distbelief {

LeaderLinks::LeaderLinks(ServedLinks& links, const ParameterTable& whole, std::vector<const ParameterTable*> parts)
    : links_(links), whole_(whole), parts_(std::move(parts)) {
  std::set<std::string> seen;
  for (const ParameterTable* part : parts_) {
    std::vector<bool>& first = first_.emplace_back();
    for (const ParameterEntry& entry : part->entries()) {
      first.push_back(entry.spec.part_axis >= 0 || seen.insert(entry.name).second);
    }
    values_.emplace_back(static_cast<std::size_t>(part->size()));
  }
}

template <typename Visit>
void LeaderLinks::for_each_run_of(std::size_t part, bool all, const Visit& visit) const {
  const std::vector<ParameterEntry>& entries = parts_[part]->entries();
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (!all && !first_[part][i]) {
      continue;
    }
    const ParameterEntry& entry = entries[i];
    const ParameterEntry& whole = whole_.at(entry.name);
    for_each_run(entry.spec, 0, whole.shape.elements(),
                 [&](std::int64_t from_whole, std::int64_t from_part, std::int64_t count) {
                   visit(whole.range.begin + from_whole, entry.range.begin + from_part, count);
                 });
  }
}

LeaderLinks::Report LeaderLinks::order(RequestHead::Kind kind, float scale, Clock::time_point deadline) {
  Report worst;
  for (std::size_t part = 0; part < count(); ++part) {
    const Report report = links_.leader(part).order(kind, scale, deadline);
    worst.status = std::max(worst.status, report.status);
    if (!report.outcome.ok()) {
      return report;
    }
  }
  return worst;
}

LeaderLinks::Report LeaderLinks::set_values(std::span<const float> values, Clock::time_point deadline) {
  if (parts_.empty()) {
    return links_.leader().set_values(values, deadline);
  }
  Report report;
  for (std::size_t part = 0; part < count() && report.outcome.ok(); ++part) {
    std::vector<float>& own = values_[part];
    for_each_run_of(part, true, [&](std::int64_t whole, std::int64_t here, std::int64_t count) {
      std::copy_n(values.data() + whole, count, own.data() + here);
    });
    report = links_.leader(part).set_values(own, deadline);
  }
  return report;
}

Outcome LeaderLinks::fetch(std::span<float> values, Clock::time_point deadline) {
  for (std::size_t part = 0; part < count(); ++part) {
    links_.leader(part).begin_fetch();
  }
  Outcome first;
  for (std::size_t part = 0; part < count(); ++part) {
    const Outcome outcome = links_.leader(part).wait_fetched(deadline);
    first = first.ok() ? outcome : first;
  }
  if (!first.ok()) {
    return first;
  }
  if (parts_.empty()) {
    links_.leader().take(values);
    return {};
  }
  for (std::size_t part = 0; part < count(); ++part) {
    std::vector<float>& own = values_[part];
    links_.leader(part).take(own);
    for_each_run_of(part, false, [&](std::int64_t whole, std::int64_t here, std::int64_t count) {
      std::copy_n(own.data() + here, count, values.data() + whole);
    });
  }
  return {};
}

LeaderLinks::Report LeaderLinks::save(std::vector<std::string>& states, Clock::time_point deadline) {
  states.clear();
  Report report;
  for (std::size_t part = 0; part < count() && report.outcome.ok(); ++part) {
    std::vector<std::string> own;
    report = links_.leader(part).save(own, deadline);
    if (report.status == ReplyHead::Status::nonfinite) {
      return report;
    }
    std::ranges::move(own, std::back_inserter(states));
  }
  return report;
}

LeaderLinks::Report LeaderLinks::restore(const std::vector<std::string>& states, Clock::time_point deadline) {
  check(states.size() % count() == 0, "states of the same servers for each part");
  const auto servers = static_cast<std::ptrdiff_t>(states.size() / count());
  Report worst;
  for (std::size_t part = 0; part < count(); ++part) {
    const auto begin = states.begin() + static_cast<std::ptrdiff_t>(part) * servers;
    const Report report = links_.leader(part).restore({begin, begin + servers}, deadline);
    worst.status = std::max(worst.status, report.status);
    if (!report.outcome.ok()) {
      return report;
    }
  }
  return worst;
}

std::uint64_t LeaderLinks::traffic() const {
  std::uint64_t bytes = 0;
  for (std::size_t part = 0; part < count(); ++part) {
    bytes += links_.leader(part).traffic().all();
  }
  return bytes;
}

}  // namespace distbelief
