#pragma once

#include <optional>

#include "exec/replica.h"
#include "params/parameter_shard.h"
#include "params/state_visitor.h"

namespace distbelief {

/// Where a strategy gets its samples, and whom it tells what became of them: the sample audit stands behind it.
class BatchStream {
 public:
  virtual ~BatchStream() = default;
  /// The next batch, valid until the next call; null at the end of an epoch.
  virtual const Batch* next() = 0;
  /// The batch has entered the parameters, once.
  virtual void applied(const Batch& batch) = 0;
  /// A rule discarded the batch.
  virtual void dropped(const Batch& batch) = 0;
};

/// What a step did.
struct StepReport {
  enum class Outcome {
    stepped,
    end_of_epoch,  ///< there was no batch; nothing happened
    /// The loss or a gradient is not finite, and parameters are untouched; or the update made a parameter so. There is
    /// nothing to go on from but a checkpoint.
    diverged,
  } outcome = Outcome::stepped;
  LossSums sums;
  std::string culprit = {};  ///< diverged: what is not finite, with the name of the layer or parameter that is first
};

/// A training algorithm: when a replica exchanges, with whom, and what. It never sees a layer, an MPI call or an
/// optimizer formula, and nothing below it knows which strategy is running. One thread.
class Strategy {
 public:
  virtual ~Strategy() = default;
  /// Brings the replica to the group's common starting point. Once, before the first step.
  virtual void join(Replica& replica) = 0;
  /// One step with the given update; on return the replica holds the parameters that the next step starts from.
  [[nodiscard]] virtual StepReport step(Replica& replica, BatchStream& batches, const UpdateOptions& update) = 0;
  /// Names all that must survive a restart, besides the replica's values: slots, clocks, ledgers.
  virtual void visit_state(StateVisitor& visitor) = 0;
};

}  // namespace distbelief
