#pragma once

#include <cstdint>
#include <span>

#include "params/parameter_table.h"

namespace distbelief {

/// The rows of a parameter with row_floats that a batch reads, and which alone its gradient has. What is exchanged
/// for a sparse batch: these rows, and all of the parameters that have no rows.
struct TouchedRows {
  const ParameterEntry* parameter = nullptr;
  std::span<const std::int32_t> rows = {};  ///< each once

  std::int64_t row_floats() const { return parameter->spec.row_floats; }
  /// Where a row begins in the flat space.
  std::int64_t offset(std::int32_t row) const { return parameter->range.begin + row * row_floats(); }
};

}  // namespace distbelief
