#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"

namespace distbelief {

/// What there is to know of a worker for finding out who holds up a job.
struct StepWatch {
  std::int64_t step = 0;
  Clock::duration unmoved = {};  ///< since its step last changed
  bool waits_for_others = false;
};

/// Which workers hold up the others: those whose step has not changed for `limit` and who do not wait themselves, while
/// some other waits or goes on. When all have stood still for so long and all wait, it is the first of those that are
/// furthest behind: what they wait for will not come. Nobody holds up others when there are none.
std::vector<std::size_t> find_stalled(std::span<const StepWatch> workers, Clock::duration limit);

}  // namespace distbelief
