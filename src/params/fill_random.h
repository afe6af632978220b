#pragma once

#include <cstdint>
#include <span>

#include "base/random.h"

namespace distbelief {

/// Fill memory with the random numbers of one stream, on thread_count() threads, many times faster than number by
/// number. What a place gets depends on the generator, the stream and its index only, of which `first` is that of out[0].
void fill_uniform(const CounterRandom& random, std::uint64_t stream, float bound, std::span<float> out,
                  std::int64_t first = 0);
void fill_normal(const CounterRandom& random, std::uint64_t stream, float deviation, std::span<float> out,
                 std::int64_t first = 0);

}  // namespace distbelief
