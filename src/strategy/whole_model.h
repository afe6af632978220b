#pragma once

#include "params/parameter_shard.h"

namespace distbelief {

/// Applies the gradient of one step of a process that holds the whole model: an epoch is one lease, its steps are the
/// pushes, in order. False when the gradient is not finite and was dropped.
[[nodiscard]] bool apply_to_whole(ParameterShard& shard, std::uint64_t epoch,
                                  std::span<const std::span<const float>> parts, std::int64_t rows,
                                  const UpdateOptions& options);

}  // namespace distbelief
