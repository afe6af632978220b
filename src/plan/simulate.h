#pragma once

#include "plan/cost_model.h"
#include "plan/pipeline_order.h"

namespace distbelief {

/// How many times as long as the sum of its layers the passes of a whole part take.
struct PassFactors {
  double forward = 1;
  double backward = 1;
};

/// A step of one copy of a network, which is played through instead of being run.
struct SimulatedStep {
  std::int64_t rows = 1;  ///< of a copy's batch
  std::int64_t micro_batches = 1;
  PipelineOrder order = PipelineOrder::one_forward_one_backward;
  bool recompute = false;
  int replicas = 1;         ///< copies, whose gradients are added up before the update
  int optimizer_slots = 0;  ///< numbers that the update rule keeps for each parameter
  MachineModel machine = {};
  /// How many times as long each process of a copy computes, stage by stage; empty: all are as fast as `machine`.
  std::vector<double> slowness = {};
  /// Of each process of a copy, stage by stage, where whole parts were measured; empty: parts take what their layers
  /// do.
  std::vector<PassFactors> whole_parts = {};

  std::int64_t micro_batch_rows() const;  ///< of the largest
};

/// Where the time of one process goes; all of it together is the step.
struct ProcessTime {
  double compute = 0;      ///< forward and backward
  double exchange = 0;     ///< its own links are busy, and it has nothing else to do
  double stage_wait = 0;   ///< for values of other stages
  double sharer_wait = 0;  ///< for those that share its stage
  double end_wait = 0;     ///< until the last process has ended the step
  double update = 0;       ///< sums over copies as far as backward does not hide them, and the update itself
  std::int64_t sent_bytes = 0;

  double waiting() const { return stage_wait + sharer_wait + end_wait; }
};

struct SimulatedTimes {
  std::vector<ProcessTime> processes;  ///< of a copy, stage by stage
  double step_seconds = 0;
};

/// Event by event, over the nodes and exchanges of every process's part. Each process does one thing after the other in
/// the pipeline's order. Values for other stages leave while it computes on, one message after the other; exchanges in
/// a stage begin when those have come to them that they are with. Nothing of the network is allocated. Throws
/// InputError as part_of().
SimulatedTimes simulate(const Graph& graph, const ParameterTable& table, const Partition& partition,
                        const SimulatedStep& step);

/// The same for parts that are there already, stage by stage.
SimulatedTimes simulate(const std::vector<NetworkPart>& parts, int tensor, const SimulatedStep& step);

/// How the times of whole parts, as the machine has measured them, are to those of their layers. Empty when it has no
/// such time of one of them.
std::vector<PassFactors> whole_part_factors(const std::vector<NetworkPart>& parts, int tensor,
                                            const SimulatedStep& step);

/// What each process of a copy does, stage by stage.
std::vector<NetworkPart> all_parts(const Graph& graph, const ParameterTable& table, const Partition& partition);

}  // namespace distbelief
