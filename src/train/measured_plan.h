#pragma once

#include "config/run_config.h"
#include "plan/partition.h"
#include "train/plan_knowledge.h"

namespace distbelief {

/// Fills in what the user did not say of how the network is cut, as plan_cut(), by what layers and links were measured
/// to take on this machine. What was not measured before is measured now, for a moment and with a line that says so,
/// and kept. Cuts and micro-batches that fit the memory of a process are preferred. Does nothing where all of it is
/// said. Throws InputError for what cannot be cut, before anything is measured.
void plan_by_measurement(RunConfig& config, const Graph& graph, const ParameterTable& table,
                         const PlanKnowledge& knowledge);

}  // namespace distbelief
