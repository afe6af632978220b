#pragma once

#include "plan/partition.h"

namespace distbelief {

/// Memory that a micro-batch of `rows` rows takes of a process, as its program has it: the part is compiled, and none
/// of its parameters are allocated. For plan/part_memory.h.
std::int64_t compiled_arena_bytes(const NetworkPart& part, std::int64_t rows);

}  // namespace distbelief
