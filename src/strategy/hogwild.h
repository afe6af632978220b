#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "params/lock_free_shard.h"
#include "strategy/strategy.h"

namespace distbelief {

/// Hogwild! (Niu et al. 2011): threads that each take batches of their own and update one set of parameters without
/// locks. Where gradients are sparse, two threads seldom write the same row, and what is then lost does no harm. The
/// parameters are the given replica's, behind a LockFreeShard; each thread has a Replica of its own to compute on, with
/// a copy of the values into which it reads, for each batch, the rows that the batch touches. Dense parameters are read
/// back with each of the thread's own updates.
///
/// Every batch is an update and a step of the run, whichever thread makes it, so that rates, logs and checkpoints mean
/// what they mean for `local`; with one thread the steps are those of `local`, bit for bit (LockFreeShard::apply() says
/// where not). But threads do not meet after every update: step() makes up to request.most_updates of them and returns
/// earlier after kLongestRound, at the end of the epoch, or when a thread meets a number that is not finite. Between
/// calls no thread runs, so that parameters can be evaluated and written. And as an update of a sparse batch takes
/// microseconds, a thread takes the samples of several from the stream at once, as many as last it for kPortionTime.
///
/// The update rule must bear lost updates: LockFreeShard::bears_races().
class Hogwild : public Strategy {
 public:
  struct Options {
    int threads = 1;
    std::int64_t batch = 1;  ///< samples an update; an epoch's last may have fewer
    /// For comparison: a mutex around all that is shared, so that reads and updates happen one after the other.
    bool locked = false;
  };
  static constexpr Clock::duration kLongestRound = std::chrono::milliseconds(100);  ///< then a stop is noticed
  static constexpr Clock::duration kPortionTime = std::chrono::milliseconds(1);

  /// Both are borrowed.
  Hogwild(Replica& replica, const UpdateRule& rule, const Options& options);
  ~Hogwild() override;
  [[nodiscard]] StepReport join() override { return {}; }
  /// A batch that diverges is dropped; others' updates of the same call stay.
  [[nodiscard]] StepReport step(BatchStream& batches, const StepRequest& request) override;
  void visit_state(StateVisitor& visitor) override;

 private:
  struct Lane;
  struct Round;
  void run(Lane& lane, Round& round);
  /// Makes the updates of the samples that the lane has taken. False when training cannot go on; why is in the lane's
  /// report.
  bool make_updates(Lane& lane, Round& round, std::int64_t first_number);
  /// One update, of rows [first, first + rows). Whether it was made is in `applied`.
  bool update(Lane& lane, std::int64_t first, std::int64_t rows, const UpdateOptions& options, bool& applied);
  /// Held only when `locked`.
  std::unique_lock<std::mutex> lock();

  Replica& replica_;
  const Options options_;
  LockFreeShard shard_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  bool began_ = false;  ///< lanes have copies of all values
};

}  // namespace distbelief
