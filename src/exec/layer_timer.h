#pragma once

#include <optional>

#include "plan/layer_times.h"

namespace distbelief {

/// What computes on the machine while a layer is timed.
struct TimedLoad {
  int threads = 1;    ///< of each process
  int processes = 1;  ///< that do the same at the same time: they share caches and memory
};

/// Runs a layer's kernels on numbers of no meaning and takes the time, as the least of a few runs: what others do on
/// the machine makes it longer, nothing makes it shorter. Images come in the blocks that vector instructions like, as
/// between the layers of a program. Nothing for layers whose time hangs on the data (sparse rows, integers), for
/// exchanges and layers that exchange, and for those that would take more than kMostTimedBytes. Changes the thread
/// count of the calling thread.
constexpr std::int64_t kMostTimedBytes = std::int64_t{1} << 30;
std::optional<LayerTime> time_layer(const Layer& layer, ValueSpecs inputs, Backward backward, const TimedLoad& load);

}  // namespace distbelief
