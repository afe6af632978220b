#pragma once

#include <string>

#include "cluster/membership.h"
#include "config/run_config.h"

namespace distbelief {

struct SharedCores {
  int sharers = 1;        ///< of what this process may use now
  std::string side = {};  ///< for threads that do not compute: see ServedTeam
};

/// Shares the cores of this machine out among the members that may use the same ones, as all of them told when they
/// joined, and binds this process to its own where config.bind says so. `late`: the others have been at work for a
/// while, and it goes where a core is free.
SharedCores share_cores(const View& view, Rank self, const RunConfig& config, bool late);

}  // namespace distbelief
