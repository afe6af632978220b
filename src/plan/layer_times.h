#pragma once

#include <optional>

#include "graph/graph.h"
#include "plan/cost_model.h"

namespace distbelief {

/// Seconds of one forward and one backward pass.
struct LayerTime {
  double forward = 0;
  double backward = 0;
};

/// Where measured costs of layers come from. One thread.
class LayerTimes {
 public:
  virtual ~LayerTimes() = default;
  /// Of a layer for a batch of inputs of these shapes; nothing: not known, and not to be found out.
  virtual std::optional<LayerTime> time_of(const Layer& layer, ValueSpecs inputs, Backward backward) = 0;
  /// Of all that a process computes for a micro-batch, run as a whole.
  virtual std::optional<LayerTime> time_of_part(const NetworkPart& /*part*/, std::int64_t /*rows*/) {
    return std::nullopt;
  }
};

}  // namespace distbelief
