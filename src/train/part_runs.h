#pragma once

#include <set>
#include <string>
#include <vector>

#include "params/parameter_part.h"
#include "params/parameter_table.h"

namespace distbelief {

/// Where what the parts of a network hold is in the whole network. Immutable.
class PartRuns {
 public:
  /// All borrowed. `parts` are the tables of the parts; none: there is one, the whole.
  PartRuns(const ParameterTable& whole, std::vector<const ParameterTable*> parts)
      : whole_(whole), parts_(parts.empty() ? std::vector{&whole} : std::move(parts)) {
    std::set<std::string> seen;
    for (const ParameterTable* part : parts_) {
      std::vector<bool>& first = first_.emplace_back();
      for (const ParameterEntry& entry : part->entries()) {
        first.push_back(entry.spec.part_axis >= 0 || seen.insert(entry.name).second);
      }
    }
  }

  std::size_t count() const { return parts_.size(); }
  const ParameterTable& whole() const { return whole_; }
  const ParameterTable& table(std::size_t part) const { return *parts_[part]; }

  /// Calls visit(place in the whole, place in the part, count) for all that a part has. Of what several parts have a
  /// copy of only the first is visited, unless `all`.
  template <typename Visit>
  void for_each(std::size_t part, bool all, const Visit& visit) const {
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

 private:
  const ParameterTable& whole_;
  const std::vector<const ParameterTable*> parts_;
  std::vector<std::vector<bool>> first_;  ///< of each part's entries: no part before has it too
};

}  // namespace distbelief
