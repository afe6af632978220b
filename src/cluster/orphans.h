#pragma once

#include "base/clock.h"

namespace distbelief {

/// From now on processes that lose their parent, and descend from this one, become children of this one: so those that
/// an mpirun of ours started and did not live to see end. For end_orphans().
void adopt_orphans();

/// Waits for all children of this process to end, and kills those that have not by the deadline. To be called when no
/// ChildProcess is left: it would find its process reaped.
void end_orphans(Clock::time_point deadline);

}  // namespace distbelief
