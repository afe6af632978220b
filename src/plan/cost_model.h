#pragma once

#include "plan/partition.h"

namespace distbelief {

/// What a process and the links between processes can do, for predictions.
struct MachineModel {
  double flops = 5e10;              ///< a second
  double memory_bandwidth = 1e10;   ///< bytes a second, of what layers read and write
  double link_bandwidth = 4e9;      ///< bytes a second, of each process
  double link_latency = 2e-5;       ///< seconds until a message is there
};

/// What one node of a process's part costs for one micro-batch, in seconds.
struct NodeCost {
  double forward = 0;
  double backward = 0;
  double exchange = 0;           ///< of both, in which the process waits for links
  std::int64_t sent_bytes = 0;   ///< by this process, in both

  double seconds() const { return forward + backward + exchange; }
};

/// `tensor` processes share the stage.
NodeCost cost_of(const Graph& part, NodeId id, std::int64_t rows, int tensor, const MachineModel& machine);

}  // namespace distbelief
