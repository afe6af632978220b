#pragma once

#include "plan/choose_cut.h"

namespace distbelief {

/// Batch norm normalises over a micro-batch: the planner leaves so many rows to each, where the batch has them.
constexpr std::int64_t kFewestRowsOfBatchNorm = 8;

/// In how many micro-batches a step of this partition is predicted to be shortest, of those counts that keep each
/// process within the memory (0: no limit) if any does: more of them fill a pipeline sooner and need less memory each,
/// fewer have fewer messages and larger products. Looks at `step.micro_batches` first, then at twice and half of it,
/// and on as long as that helps by more than a hundredth. The same request gives the same answer.
std::int64_t choose_micro_batches(const Graph& graph, const ParameterTable& table, const Partition& partition,
                                  const SimulatedStep& step, std::int64_t memory_limit);

}  // namespace distbelief
