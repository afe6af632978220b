#include "base/random.h"

#include <cmath>
#include <numbers>

namespace distbelief {

float CounterRandom::normal(std::uint64_t stream, std::uint64_t index) const {
  const auto w = words(stream, index);
  const double radius_uniform = (w[0] + 1.0) * 0x1p-32;  // in (0, 1], so that the logarithm is finite
  const double angle_uniform = w[1] * 0x1p-32;
  return static_cast<float>(std::sqrt(-2.0 * std::log(radius_uniform)) *
                            std::cos(2.0 * std::numbers::pi * angle_uniform));
}

}  // namespace distbelief
