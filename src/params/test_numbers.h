#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/random.h"

namespace distbelief {

/// For tests: normal numbers, others for another stream.
inline std::vector<float> test_numbers(std::size_t count, std::uint64_t stream) {
  const CounterRandom random(5, RandomUse::generate);
  std::vector<float> out(count);
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = random.normal(stream, i);
  }
  return out;
}

}  // namespace distbelief
