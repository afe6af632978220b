#pragma once

#include <memory>

#include "graph/layers/pooling.h"

namespace distbelief {

/// Max-pooling by 2×2 windows side by side, the most common kind, on oneDNN's channel-blocked layout: one pass each
/// way, with the ReLU in it. oneDNN's own takes four to five times as long. Null when the input or the options do not
/// fit.
std::unique_ptr<Kernel> compile_max_pool_2x2(const ValueLayout& input, const Shape& output, const Window& window,
                                             const PoolingOptions& options, Purpose purpose);

}  // namespace distbelief
