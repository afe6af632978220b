#include "tensor/parameter_spec.h"

#include <cmath>

namespace distbelief {

Initializer Initializer::he(std::int64_t fan_in) { return normal(std::sqrt(2.0F / static_cast<float>(fan_in))); }

Initializer Initializer::glorot(std::int64_t fan_in, std::int64_t fan_out) {
  return uniform(std::sqrt(6.0F / static_cast<float>(fan_in + fan_out)));
}

Initializer Initializer::small(std::int64_t fan_in) { return uniform(0.1F / std::sqrt(static_cast<float>(fan_in))); }

Shape ParameterSpec::whole_shape() const {
  std::vector<std::int64_t> dims = shape.dims();
  if (part_axis >= 0) {
    dims.at(static_cast<std::size_t>(part_axis)) = part.whole;
  }
  return Shape(std::move(dims));
}

}  // namespace distbelief
