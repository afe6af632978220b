#pragma once

#include <string>

#include "exec/replica.h"
#include "params/parameter_shard.h"

namespace distbelief {

/// What became of a gradient.
struct WholeUpdate {
  bool applied = true;       ///< false: it is not finite, and was dropped
  std::string culprit = {};  ///< what is not finite: the gradient, or now a parameter; empty when all is well
};

/// What shrinks a gradient, of which this process has a part, to the length `most` that the whole may have, once it was
/// multiplied with `scale`: 1 when it is not longer. Parameters of which several processes have copies count once. All
/// who hold parts of the network call it together. Throws ExchangeLost.
[[nodiscard]] double clipping_factor(const Replica& replica, std::span<const std::span<const float>> parts,
                                     double scale, double most);

/// How a gradient is to be applied, once all that takes part in it is known.
struct PreparedUpdate {
  float scale = 1;
  UpdateOptions options;
};
/// The first half of apply_to_whole(): asks the other parts of the network what it must know of them. Throws
/// ExchangeLost.
[[nodiscard]] PreparedUpdate prepare_update(const Replica& replica, std::span<const std::span<const float>> parts,
                                            std::int64_t rows, const UpdateOptions& given);
/// The second half: asks nobody.
[[nodiscard]] WholeUpdate apply_prepared(ParameterShard& shard, const Replica& replica, std::uint64_t epoch,
                                         std::span<const std::span<const float>> parts, const PreparedUpdate& prepared);

/// Applies the gradient of one step of a process that holds the whole model: an epoch is one lease, its steps are the
/// pushes, in order.
[[nodiscard]] WholeUpdate apply_to_whole(ParameterShard& shard, const Replica& replica, std::uint64_t epoch,
                                         std::span<const std::span<const float>> parts, std::int64_t rows,
                                         const UpdateOptions& given);

}  // namespace distbelief
