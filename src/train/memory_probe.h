#pragma once

#include "exec/layer_timer.h"

namespace distbelief {

/// Bytes a second that one of several processes of this machine reads and writes in arrays larger than its caches, as
/// an update of parameters does.
double probe_memory(const TimedLoad& load);

}  // namespace distbelief
