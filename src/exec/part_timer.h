#pragma once

#include <optional>

#include "exec/layer_timer.h"
#include "plan/partition.h"

namespace distbelief {

/// Seconds that a process computes for a micro-batch of `rows` rows of its part: the compiled part runs forward, loss
/// and backward on numbers of no meaning, with exchanges that move nothing. Unlike the sum of its layers' own times
/// this has caches that other layers have used meanwhile, values that change their layout between layers, and the
/// input. The median of a few runs. Nothing where time hangs on the data (sparse rows, integers) and where it would
/// take more than kMostTimedBytes. Changes the thread count of the calling thread.
std::optional<LayerTime> time_part(const NetworkPart& part, std::int64_t rows, const TimedLoad& load);

}  // namespace distbelief
