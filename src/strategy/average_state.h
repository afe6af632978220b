#pragma once

#include "comm/group.h"
#include "params/parameter_shard.h"

namespace distbelief {

/// Turns the values and the optimizer state that belongs to them into the mean over the group. Counters must be equal
/// on all members already. When it fails both are undefined.
Outcome average_state(Group& group, std::span<float> values, ParameterShard& shard, Clock::time_point deadline);

}  // namespace distbelief
