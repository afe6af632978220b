#pragma once

#include <optional>
#include <vector>

#include "params/parameter_shard.h"
#include "strategy/unit_exchange.h"

namespace distbelief {

/// A worker of asynchronous SGD through parameter servers (Downpour, Dean et al. 2012). It fetches parameters every
/// `fetch_every` batches, computes gradients, and pushes the sum of each unit's: servers apply them as they come, from
/// whomever. Between fetches it also applies its gradients to its own copy, which is a cache: nothing of it counts.
///
/// Without `prefetch` the values that a step starts from contain all that this worker has pushed, so that one worker
/// that fetches and pushes each time is plain SGD, bit for bit. With it they are asked for one step earlier, and come
/// while that step computes.
///
/// With `whole_steps` it is synchronous SGD through servers that gather: a worker whose push every block took waits
/// until all blocks have made their updates. With one server, what it fetches after that is what all others fetch; of
/// several servers each has its own first gradients of a step.
///
/// Servers may refuse a push because its gradient is of values that are too old by then. The step then computes
/// nothing: what was computed is dropped, the samples go back, and values are fetched anew.
///
/// A replica of touched rows (GradientRows::touched) pushes only what its batches touch, and, with `fetch_every` 1 and
/// no `prefetch`, fetches only what the next batch does. Its values are then right there alone. One worker is still
/// plain SGD bit for bit, but for a gradient shortened by clip_norm, whose length is added up in another order.
///
/// A step ends with end_of_epoch when there was no batch: all pushes are then acknowledged and reported.
class Downpour : public ServedStrategy {
 public:
  using Options = UnitExchange::Options;
  /// All but `options` are borrowed. `rule` is what the servers use, for the worker's own steps between fetches.
  Downpour(Replica& replica, const UpdateRule& rule, ServerClient& client, const Options& options);
  [[nodiscard]] StepReport step(BatchStream& batches, const StepRequest& request) override;

 private:
  /// Values, if they are due; what the own steps have changed that is in no push yet is added to them.
  UnitExchange::Ending refresh(BatchStream& batches);
  /// What the gradient of a batch is multiplied with, so that that of the whole network is not longer than allowed.
  float clipping(const LossSums& sums, float clip_norm) const;
  /// Also to the worker's own copy.
  void step_locally(const PushUnit& unit, const LossSums& sums, const UpdateOptions& update);

  Replica& replica_;
  const UpdateRule& rule_;
  std::optional<TouchedRuns> touched_;  ///< by the batch of this step, if the replica is one of touched rows
  std::optional<ParameterShard> own_;   ///< these five: for own steps between fetches
  std::uint64_t own_steps_ = 0;
  std::vector<float> own_floats_;  ///< of a gradient of touched runs
  bool steps_are_pushed_ = true;
  std::vector<float> before_steps_;  ///< if not: the values without those own steps that are in no push yet
};

}  // namespace distbelief
