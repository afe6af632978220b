#pragma once

#include <filesystem>
#include <functional>
#include <string_view>

namespace distbelief {

/// What the planner of a run may look up and tell.
struct PlanKnowledge {
  std::filesystem::path cache = {};                      ///< of what was measured here before; empty: there is none
  std::function<void(std::string_view line)> note = {};  ///< one line for the user
};

}  // namespace distbelief
