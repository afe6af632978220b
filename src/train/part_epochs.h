#pragma once

#include <cstdint>
#include <vector>

#include "comm/group.h"

namespace distbelief {

/// The groups of a view where a network is cut over several workers, besides that of all who train, whose epoch is the
/// view's number.
enum class PartGroup : std::uint32_t {
  parts = 0,     ///< of one copy; the next two are its too
  column = 3,    ///< those that have the same part of each copy
  files = 4,     ///< the parts of the copy that brings the network to files
  meeting = 5,   ///< all who live, before they know who of them trains
  handover = 6,  ///< of who have a part, and who come and get it from the first of these
};

/// MPI's tags have room for so many views of a job with such a network.
inline constexpr std::uint32_t kMostPartViews = 31;

inline std::uint32_t part_epoch(std::uint32_t view, PartGroup group) {
  constexpr std::uint32_t kFirst = 0x20;  // view numbers are below
  constexpr std::uint32_t kGroupsOfAView = 7;
  return kFirst + view * kGroupsOfAView + static_cast<std::uint32_t>(group);
}

/// What tags of a view's groups carry: for Fabric::end_epoch().
inline std::vector<std::uint32_t> tag_epochs_of_view(std::uint32_t view, bool is_cut) {
  std::vector<std::uint32_t> epochs;
  const auto add = [&](std::uint32_t epoch) {
    for (const std::uint32_t one : Group::tag_epochs(epoch)) {
      epochs.push_back(one);
    }
  };
  add(view);
  for (std::uint32_t i = 0; is_cut && view <= kMostPartViews && i <= static_cast<std::uint32_t>(PartGroup::handover);
       ++i) {
    add(part_epoch(view, PartGroup{i}));
  }
  return epochs;
}

}  // namespace distbelief
