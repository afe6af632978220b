#pragma once

#include <string>
#include <vector>

#include "config/run_config.h"
#include "plan/choose_cut.h"
#include "plan/grid.h"

namespace distbelief {

/// The grid of a run whose stages and tensor are settled.
Grid grid_of(const RunConfig& config);

/// Micro-batches of a step; as long as nobody has said how many, those that the planner begins with.
std::int64_t micro_batches_of(const RunConfig& config);

/// What a plan is made for, besides the run's own options.
struct PlanPlace {
  MachineModel machine = {};
  std::int64_t memory_limit = 0;  ///< bytes of each process; 0: none
};

/// What the planner is asked for a run.
CutRequest cut_request(const RunConfig& config, int stages, int tensor, const PlanPlace& place = {});

/// One way to cut a run's network, and what is predicted of it.
struct WeighedCut {
  RunConfig config;  ///< with stages, tensor, stage-at, cuts and micro-batches filled in
  int stages = 1;
  int tensor = 1;
  SimulatedStep step = {};
  Partition partition = {};
  Prediction prediction = {};
  std::string problem = {};  ///< why it cannot be done; then there is no prediction
  bool fits = true;          ///< every process keeps to the memory limit
  bool compiled = false;     ///< memory is what its programs take, not an estimate
};

/// All stages × tensor that the run may have, those first that can be done and fit the memory, in the order of their
/// step times. What the user said of stages and cuts holds for all.
std::vector<WeighedCut> weigh_cuts(const RunConfig& config, const Graph& graph, const ParameterTable& table,
                                   const PlanPlace& place = {});

/// Compiles the parts of the first of them, and of those that may not fit when there is a limit, and puts the memory
/// that their programs take in the place of estimates, and where times are measured what whole parts take in the place
/// of the sum of their layers; rejected ones are taken to be as much slower as the first. Then they are sorted as
/// weigh_cuts() does, until the first is one of those that were compiled.
void settle(std::vector<WeighedCut>& cuts, const Graph& graph, const ParameterTable& table, std::int64_t memory_limit);

/// Whether the user left something of how the network is cut to the planner.
bool needs_plan(const RunConfig& config);

/// The first of weigh_cuts(). Throws InputError when none can be done, saying what would work.
WeighedCut best_cut(const RunConfig& config, const Graph& graph, const ParameterTable& table,
                    const PlanPlace& place = {});

/// Likewise the first when they are settled: what `distbelief plan` shows.
WeighedCut best_settled_cut(const RunConfig& config, const Graph& graph, const ParameterTable& table,
                            const PlanPlace& place);

/// Fills in what the user did not say of how the network is cut: stages, tensor, stage-at, cuts and micro-batches. Does
/// nothing for a network in one process, nor where all of it is said: workers that read what another process has
/// planned never plan themselves. Goes by operations, so that the same options give the same plan everywhere. Throws
/// InputError as best_cut().
void plan_cut(RunConfig& config, const Graph& graph, const ParameterTable& table);

/// As stage-at, cuts and shares say. Throws InputError for layers that there are not.
Partition partition_of(const RunConfig& config, const Graph& graph);

}  // namespace distbelief
