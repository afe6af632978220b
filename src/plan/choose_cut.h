#pragma once

#include "plan/part_memory.h"

namespace distbelief {

/// What a partition is chosen for: a grid of stages and of processes that share each, and the step that they make.
struct CutRequest {
  int stages = 1;
  int tensor = 1;
  SimulatedStep step = {};
  std::int64_t memory_limit = 0;  ///< bytes of each process; 0: none
};

/// What is predicted of one process.
struct ProcessPrediction {
  int stage = 0;
  int position = 0;
  ProcessTime time;
  PartMemory memory;
  std::int64_t parameters = 0;
};
struct Prediction {
  std::vector<ProcessPrediction> processes;  ///< of a copy, stage by stage
  double step_seconds = 0;
  /// Share of all processes' time in which they wait for other stages, or for the last of them to end.
  double bubble = 0;
  std::int64_t most_memory = 0;  ///< that a process takes
};

/// The partition with the least predicted step time that the search finds: how the work of each layer is shared out by
/// trying for one layer after the other what else it offers, and where stages begin by dynamic programming over the
/// layers' costs, of those runs of layers that fit the memory if there are such. The same request gives the same
/// answer. Throws InputError when the network has fewer layers than stages, or none of it can be shared out.
Partition choose_partition(const Graph& graph, const ParameterTable& table, const CutRequest& request);

/// `arena`: where the memory of activations comes from.
Prediction predict(const Graph& graph, const ParameterTable& table, const Partition& partition,
                   const SimulatedStep& step, const ArenaBytes& arena = estimated_arena_bytes);

}  // namespace distbelief
