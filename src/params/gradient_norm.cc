#include "params/gradient_norm.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "tensor/vector_ops.h"

namespace distbelief {

double gradient_squares(const ParameterEntry& entry, std::span<const std::span<const float>> parts) {
  constexpr std::int64_t kChunk = 1024;
  std::array<float, kChunk> sum;
  double squares = 0;
  for (std::int64_t at = entry.range.begin; at < entry.range.end; at += kChunk) {
    const std::int64_t count = std::min(kChunk, entry.range.end - at);
    const float* gradient = parts[0].data() + at;
    for (std::size_t part = 1; part < parts.size(); ++part) {
      add(gradient, parts[part].data() + at, sum.data(), count);
      gradient = sum.data();
    }
    squares += square_sum(gradient, count);
  }
  return squares;
}

double gradient_norm(const ParameterTable& table, std::span<const std::span<const float>> parts) {
  double squares = 0;
  for (const ParameterEntry& entry : table.entries()) {
    if (!entry.frozen && entry.spec.kind != ParameterKind::averaged) {
      squares += gradient_squares(entry, parts);
    }
  }
  return std::sqrt(squares);
}

}  // namespace distbelief
