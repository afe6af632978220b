#pragma once

#include "plan/cost_model.h"

namespace distbelief {

/// What a partition is chosen for.
struct CutRequest {
  int stages = 1;
  int tensor = 1;
  std::int64_t rows = 1;           ///< of a replica's batch
  std::int64_t micro_batches = 1;
  MachineModel machine = {};
};

/// What is predicted of a step, for one process of each stage.
struct StagePrediction {
  double compute = 0;   ///< seconds for all micro-batches
  double exchange = 0;
  std::int64_t sent_bytes = 0;
  std::int64_t parameters = 0;
  int layers = 0;
};
struct Prediction {
  std::vector<StagePrediction> stages;
  double step_seconds = 0;
  double bubble = 0;  ///< share of a step in which the busiest stage waits for the pipeline to fill and run empty
};

/// The partition with the least predicted step time that the search finds: how the work of each layer is shared out by
/// trying for one layer after the other what else it offers, and where stages begin by dynamic programming over the
/// layers' costs. The same request gives the same answer. Throws InputError when the network has fewer layers than
/// stages, or none of it can be shared out.
Partition choose_partition(const Graph& graph, const ParameterTable& table, const CutRequest& request);

Prediction predict(const Graph& graph, const ParameterTable& table, const Partition& partition,
                   const CutRequest& request);

}  // namespace distbelief
