#pragma once

#include "strategy/hogwild_lanes.h"

namespace distbelief {

/// Hogwild! (Niu et al. 2011): threads that each take batches of their own and update one set of parameters without
/// locks (HogwildLanes). Where gradients are sparse, two threads seldom write the same row, and what is then lost does
/// no harm.
///
/// Every batch is an update and a step of the run, whichever thread makes it, so that rates, logs and checkpoints mean
/// what they mean for `local`; with one thread the steps are those of `local`, bit for bit (LockFreeShard::apply() says
/// where not). But threads do not meet after every update: step() makes up to request.most_updates of them and returns
/// earlier after kLongestRound, at the end of the epoch, or when a thread meets a number that is not finite. Between
/// calls no thread runs, so that parameters can be evaluated and written.
class Hogwild : public Strategy {
 public:
  using Options = HogwildLanes::Options;
  static constexpr Clock::duration kLongestRound = std::chrono::milliseconds(100);  ///< then a stop is noticed

  /// Both are borrowed.
  Hogwild(Replica& replica, const UpdateRule& rule, const Options& options) : lanes_(replica, rule, options) {}
  [[nodiscard]] StepReport join() override { return {}; }
  /// A batch that diverges is dropped; others' updates of the same call stay.
  [[nodiscard]] StepReport step(BatchStream& batches, const StepRequest& request) override;
  void visit_state(StateVisitor& visitor) override { lanes_.visit_state(visitor); }

 private:
  HogwildLanes lanes_;
  Batch first_;  ///< of a call of step()
};

}  // namespace distbelief
