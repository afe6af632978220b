#pragma once

#include <functional>

#include "plan/simulate.h"

namespace distbelief {

/// Bytes that training takes of one process. Data that are kept in memory come on top.
struct PartMemory {
  std::int64_t program = 0;   ///< with its libraries
  std::int64_t messages = 0;  ///< on their way out, on their way in, and come too early; or pieces of files
  std::int64_t parameters = 0;
  std::int64_t gradients = 0;  ///< with the sum over micro-batches, where there are several
  std::int64_t optimizer = 0;
  std::int64_t activations = 0;  ///< values between layers, their gradients and workspaces, for all open micro-batches

  std::int64_t total() const { return program + messages + parameters + gradients + optimizer + activations; }
};

/// Memory of one micro-batch of `rows` rows between its forward and its backward pass.
using ArenaBytes = std::function<std::int64_t(const NetworkPart& part, std::int64_t rows)>;

/// What is known without compiling kernels: what layers keep for backward, and the largest of what lives besides. Tests
/// compare it with what the executor plans (exec/part_memory_test.cc).
std::int64_t estimated_arena_bytes(const NetworkPart& part, std::int64_t rows);

/// Of the process that has this part in stage `stage` of `stages`.
PartMemory part_memory(const NetworkPart& part, int stage, int stages, const SimulatedStep& step,
                       const ArenaBytes& arena = estimated_arena_bytes);

}  // namespace distbelief
