#pragma once

#include <cstdint>
#include <optional>

#include "graph/loss.h"
#include "params/state_visitor.h"

namespace distbelief {

/// Sees from the training loss that training diverges: when the mean over a window of samples is worse than over the
/// first one, and over twice the best. The window after such a moment is passed over, because gradients of the rate
/// before are still on their way. One thread.
class DivergenceGuard {
 public:
  /// `window`: samples.
  explicit DivergenceGuard(std::int64_t window) : window_(window) {}

  struct Alarm {
    double best = 0;  ///< mean loss
    double now = 0;
  };
  /// Of samples that were applied since the last call.
  std::optional<Alarm> watch(const LossSums& sums);
  void visit_state(StateVisitor& visitor);

 private:
  const std::int64_t window_;
  LossSums open_;
  std::optional<double> first_;
  double best_ = 0;
  bool passes_ = false;
};

}  // namespace distbelief
