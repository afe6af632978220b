#pragma once

#include <string_view>

#include "graph/graph.h"

namespace distbelief {

/// How a replica uses its threads: all of them inside each kernel, or each on its own part of the batch (a lane).
enum class ThreadMode { kernels, lanes };

std::string_view thread_mode_name(ThreadMode mode);

/// The mode that bench/thread_modes.sh measured to be faster for networks of this kind. A function of its arguments
/// alone, not of a measurement during the run: equal runs give equal bits.
ThreadMode faster_thread_mode(const Graph& graph, std::int64_t batch, int threads);

}  // namespace distbelief
