#pragma once

#include <mutex>
#include <optional>

#include "server/touched_runs.h"
#include "strategy/hogwild_lanes.h"
#include "strategy/unit_exchange.h"

namespace distbelief {

/// Hogwild! inside a worker of Downpour: its threads each take batches of the same push unit and update the worker's
/// own copy without locks (HogwildLanes); the sum of the unit's gradients is pushed, as Downpour pushes it. Adding to
/// that sum is all that they do in turns. Between workers all is as with Downpour: fetches, staleness, refusals,
/// reports and endings are UnitExchange's. Of parameters with rows, what the unit touches is pushed; fetches are whole.
///
/// A step is a unit: it begins with values that are fetched when those before have served for `fetch_every` batches,
/// and replace the copy, since what was computed before has been pushed. So threads meet at a unit's end, and a unit
/// should have many more batches than there are threads.
///
/// With one thread the losses are those of Downpour that fetches at the beginning of the same units and steps between,
/// bit for bit (LockFreeShard::apply() says where not).
class HogwildDownpour : public ServedStrategy {
 public:
  /// All but options are borrowed. `rule` is what the servers use, for the worker's own steps; it must bear races.
  HogwildDownpour(Replica& replica, const UpdateRule& rule, ServerClient& client, const UnitExchange::Options& exchange,
                  const HogwildLanes::Options& lanes);
  /// A unit with a number that is not finite is not pushed.
  [[nodiscard]] StepReport step(BatchStream& batches, const StepRequest& request) override;

 private:
  /// The gradient of a batch to that of the unit; each thread calls it.
  void add(const SparseGradient& gradient, float factor, const LossSums& sums);

  Replica& replica_;
  const std::int64_t batch_;
  HogwildLanes lanes_;
  std::mutex mutex_;                    ///< of the sum of gradients
  std::optional<TouchedRuns> touched_;  ///< by the batch that is added, where parameters have rows
};

}  // namespace distbelief
