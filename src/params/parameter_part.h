#pragma once

#include <algorithm>

#include "tensor/parameter_spec.h"

namespace distbelief {

/// Calls visit(place in the whole, place in the part, count) for each run of floats that a part has of the places
/// [begin, end) of the whole parameter, in order.
template <typename Visit>
void for_each_run(const ParameterSpec& spec, std::int64_t begin, std::int64_t end, const Visit& visit) {
  if (spec.part_axis < 0) {
    if (begin < end) {
      visit(begin, begin, end - begin);
    }
    return;
  }
  std::int64_t outer = 1;
  std::int64_t inner = 1;
  for (int i = 0; i < spec.shape.rank(); ++i) {
    outer *= i < spec.part_axis ? spec.shape[i] : 1;
    inner *= i > spec.part_axis ? spec.shape[i] : 1;
  }
  const std::int64_t stride = spec.part.whole * inner;
  const std::int64_t run = spec.part.size() * inner;
  for (std::int64_t o = begin / stride; o < outer && o * stride < end; ++o) {
    const std::int64_t first = o * stride + spec.part.begin * inner;
    const std::int64_t from = std::max(begin, first);
    const std::int64_t to = std::min(end, first + run);
    if (from < to) {
      visit(from, o * run + from - first, to - from);
    }
  }
}

}  // namespace distbelief
