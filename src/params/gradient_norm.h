#pragma once

#include <span>

#include "params/parameter_table.h"

namespace distbelief {

/// The sum of squares of one parameter's gradient, which is the sum of parts that each cover the space.
double gradient_squares(const ParameterEntry& entry, std::span<const std::span<const float>> parts);
/// The Euclidean length of the sum of parts that each cover the space, over all that is optimized and not frozen.
double gradient_norm(const ParameterTable& table, std::span<const std::span<const float>> parts);

}  // namespace distbelief
