#pragma once

#include "plan/partition.h"

namespace distbelief {

class LayerTimes;

/// What a process and the links between processes can do, for predictions.
struct MachineModel {
  double flops = 5e10;             ///< a second, of each process
  double memory_bandwidth = 1e10;  ///< bytes a second, of what layers and updates read and write
  double link_bandwidth = 4e9;     ///< bytes a second, that each process sends
  double link_latency = 2e-5;      ///< seconds until a message is there
  double message_seconds = 5e-6;   ///< that a process is busy with each message, whatever is in it
  LayerTimes* times = nullptr;     ///< borrowed; what it knows of layers is believed before `flops`

  /// Rounds one after the other, in which so many messages and bytes leave.
  double link_seconds(double rounds, double messages, double bytes) const {
    return rounds * link_latency + messages * message_seconds + bytes / link_bandwidth;
  }
};

/// What one node of a process's part costs for one micro-batch.
struct NodeCost {
  double forward = 0;  ///< seconds that the process computes
  double backward = 0;
  double forward_exchange = 0;  ///< seconds of its links
  double backward_exchange = 0;
  std::int64_t sent_bytes = 0;  ///< by this process, in both

  double exchange() const { return forward_exchange + backward_exchange; }
  double seconds() const { return forward + backward + exchange(); }
};

/// Whether each node of a part runs backward, and whether the gradient of its input is wanted.
struct Backward {
  bool parameters = false;  ///< it trains some
  bool inputs = false;
  bool runs() const { return parameters || inputs; }
};
std::vector<Backward> backward_of(const Graph& part, const ParameterTable& table);

/// For each node of a part, one of the `tensor` that share its stage. Nodes that are exchanges compute nothing; batch
/// norm of shared rows does both.
std::vector<NodeCost> node_costs(const Graph& part, const ParameterTable& table, std::int64_t rows, int tensor,
                                 const MachineModel& machine);

/// Whether the layer moves values between processes instead of computing.
bool is_exchange(const Layer& layer);

/// Seconds for an update of so many parameters by a rule that keeps `slots` numbers for each.
double update_seconds(std::int64_t parameters, int slots, const MachineModel& machine);
/// Seconds in which a micro-batch's gradient is added to those before it.
double accumulate_seconds(std::int64_t parameters, const MachineModel& machine);
/// Seconds in which `processes` have the sum of these bytes.
double sum_seconds(int processes, double bytes, const MachineModel& machine);

}  // namespace distbelief
