#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "exec/replica.h"
#include "params/parameter_shard.h"
#include "params/state_visitor.h"
#include "server/wire.h"

namespace distbelief {

/// Which push a batch belongs to.
struct PushUnit {
  PushId id = {};
  SampleRun samples = {};       ///< of the whole unit
  bool ends = true;             ///< the batch is the unit's last
  std::uint64_t low_water = 0;  ///< all leases below are done
  SampleRun lease = {};         ///< that it is of
};

/// Where a strategy gets its samples, and whom it tells what became of them: the sample audit stands behind it.
class BatchStream {
 public:
  virtual ~BatchStream() = default;
  /// For strategies that push to servers: of the batch that next() gave last.
  virtual PushUnit unit() const { return {}; }
  /// For the same: the unit is in every block, and whoever keeps the books knows it.
  virtual void reported(const PushUnit& /*unit*/) {}
  /// For the same: a server refused the unit, which is dropped, and known to be. It and what follows of its lease goes
  /// back, for whoever leases it next. True when the batch that next() gave last is of that, and void.
  virtual bool refused(const PushUnit& /*unit*/) { return false; }
  /// The next batch, valid until the next call; null at the end of an epoch. In a group all members see equally many
  /// batches an epoch; one may be empty.
  virtual const Batch* next() = 0;
  /// For strategies whose threads each take batches of their own: the next batches of this epoch, at least 1 and at
  /// most `most` of them, read into one by the calling thread; all but an epoch's last are equally large. False when
  /// the epoch has no more, which next() then says too. A stream of push units gives so what next() has left of a unit,
  /// and what next() gave stays valid; false when the unit has no more, and unit() then is of its last batch.
  /// Thread-safe, as are applied() and dropped() of a stream that is used so.
  virtual bool take(Batch& /*batches*/, std::int64_t /*most*/) {
    check(false, "this stream has batches for one thread");
    return false;
  }
  /// Other members took these samples in the same step.
  virtual void leased_by_others(std::span<const std::uint64_t> ids) = 0;
  /// These samples have entered the parameters, once.
  virtual void applied(std::span<const std::uint64_t> ids) = 0;
  /// A rule discarded these samples.
  virtual void dropped(std::span<const std::uint64_t> ids) = 0;
};

/// What a step has cost a member of a group.
struct StepCosts {
  std::uint64_t rows = 0;      ///< samples of its own; 0: it has nothing to tell
  std::uint64_t computed = 0;  ///< nanoseconds in which it computed,
  std::uint64_t loaded = 0;    ///< waited for its data,
  std::uint64_t took = 0;      ///< and did anything at all, such as waiting for others
  std::uint64_t host = 0;      ///< the same number for all on one machine

  friend bool operator==(const StepCosts&, const StepCosts&) = default;
};

struct StepRequest {
  UpdateOptions update;
  bool stop = false;     ///< this process was asked to stop
  bool regroup = false;  ///< this process knows of members that came, or wants to leave
  /// A strategy that makes many small updates may make so many of them before it returns; others make one.
  std::int64_t most_updates = 1;
  /// The rate of the i-th of them, from 0; of the first it is update.rate. Thread-safe. Empty: that of the first.
  std::function<float(std::int64_t)> rate_of = {};
  StepCosts costs = {};  ///< of the step before, for the others; of use to synchronous strategies
};

/// What a step did.
struct StepReport {
  enum class Outcome {
    stepped,
    end_of_epoch,  ///< there was no batch; nothing happened
    /// The loss or a gradient is not finite, and parameters are untouched; or the update made a parameter so. There is
    /// nothing to go on from but a checkpoint.
    diverged,
    group_lost,  ///< a member of the group died or does not answer; holds_state() says what parameters are worth
  } outcome = Outcome::stepped;
  std::int64_t updates = 1;  ///< that were made, each a step to the loop; diverged: and the one that failed
  LossSums sums = {};        ///< over the samples of all members
  /// diverged: what is not finite, with the name of the layer or parameter that is first; group_lost: who, and why.
  std::string culprit = {};
  bool stop = false;                  ///< a member was asked to stop; all hear of it after the same step
  bool regroup = false;               ///< likewise, a member knows of others that came, or wants to leave
  bool completed = false;             ///< group_lost: but the step's update is in the parameters here
  std::vector<StepCosts> costs = {};  ///< what all members, in order, have told of the step before; empty: nobody did
};

/// A training algorithm: when a replica exchanges, with whom, and what. It never sees a layer, an MPI call or an
/// optimizer formula, and nothing below it knows which strategy is running. Made for one replica. One thread.
class Strategy {
 public:
  virtual ~Strategy() = default;
  /// Brings all replicas to the common starting point, which is what the first member holds: values and visit_state().
  /// Once, before the first step. Only stepped or group_lost comes back.
  [[nodiscard]] virtual StepReport join() = 0;
  /// One step; on return the replica holds the parameters that the next step starts from.
  [[nodiscard]] virtual StepReport step(BatchStream& batches, const StepRequest& request) = 0;
  /// From the next step on no member takes more samples than this; all hear it between the same two steps.
  virtual void expect_rows(std::int64_t /*most_rows*/) {}
  /// Brings the replicas together where they differ between steps: before an evaluation, a checkpoint and the end. All
  /// members call it after the same step. Reports sums that no step has reported yet; never end_of_epoch. A strategy
  /// may only show what is common until the next step.
  [[nodiscard]] virtual StepReport settle(BatchStream& /*batches*/) { return {}; }
  /// After group_lost: the step lacks nothing here, but others may not have all of it.
  virtual bool is_prepared() const { return false; }
  /// Makes that step all the same, because others have: parameters and the audit are as after step(), whose report it
  /// is. The batch that step() took is still there.
  [[nodiscard]] virtual StepReport finish_prepared(BatchStream& /*batches*/) { return {}; }
  /// Whether all members have the same parameters after every step, and not only after settle() and now and then.
  virtual bool in_step() const { return true; }
  /// Whether the replica's values and visit_state() are, here and now, all that a checkpoint needs.
  virtual bool holds_state() const { return true; }
  /// Names all that must survive a restart, besides the replica's values: slots, clocks, ledgers.
  virtual void visit_state(StateVisitor& visitor) = 0;
};

}  // namespace distbelief
