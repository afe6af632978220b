#pragma once

#include "config/run_config.h"
#include "plan/choose_cut.h"
#include "plan/grid.h"

namespace distbelief {

/// The grid of a run whose stages and tensor are settled.
Grid grid_of(const RunConfig& config);

/// Micro-batches of a step.
std::int64_t micro_batches_of(const RunConfig& config);

/// What the planner is asked for a run.
CutRequest cut_request(const RunConfig& config, int stages, int tensor);

/// Fills in what the user did not say of how the network is cut: stages, tensor, stage-at and cuts. Does nothing for a
/// network in one process. Throws InputError when it cannot be cut so, saying what would work.
void plan_cut(RunConfig& config, const Graph& graph, const ParameterTable& table);

/// As stage-at and cuts say. Throws InputError for layers that there are not.
Partition partition_of(const RunConfig& config, const Graph& graph);

}  // namespace distbelief
