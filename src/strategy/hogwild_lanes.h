#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "params/lock_free_shard.h"
#include "strategy/strategy.h"

namespace distbelief {

/// The threads of Hogwild!: each takes batches of its own and updates one set of parameters without locks. The
/// parameters are the given replica's, behind a LockFreeShard; each thread has a Replica of its own to compute on, with
/// a copy of the values into which it reads, for each batch, the rows that the batch touches. Dense parameters are read
/// back with each of the thread's own updates.
///
/// As an update of a sparse batch takes microseconds, a thread takes the samples of several from the stream at once, as
/// many as last it for kPortionTime. Between calls no thread runs, and the parameters may be read and changed.
///
/// The update rule must bear lost updates: LockFreeShard::bears_races().
class HogwildLanes {
 public:
  struct Options {
    int threads = 1;
    std::int64_t batch = 1;  ///< samples an update; a stream's last may have fewer
    /// For comparison: a mutex around all that is shared, so that reads and updates happen one after the other.
    bool locked = false;
  };
  /// Hears of the gradient of each update that was made, on the thread that made it, what it was multiplied with to be
  /// no longer than allowed, and the sums of its batch.
  using Listener = std::function<void(const SparseGradient& gradient, float factor, const LossSums& sums)>;
  static constexpr Clock::duration kPortionTime = std::chrono::milliseconds(1);

  /// Both are borrowed.
  HogwildLanes(Replica& replica, const UpdateRule& rule, const Options& options);
  ~HogwildLanes();

  int threads() const { return options_.threads; }

  /// Makes up to request.most_updates updates: of `first`, a batch that must stay as it is meanwhile, and of what
  /// BatchStream::take() gives. Ends earlier at the deadline, when there is no more to take, or when a thread meets a
  /// number that is not finite: diverged; its batch is dropped, others' updates of the same call stay. Rethrows what a
  /// thread threw. `listener` may be empty.
  [[nodiscard]] StepReport run(BatchStream& batches, const Batch& first, const StepRequest& request,
                               Clock::time_point deadline, const Listener& listener);
  void visit_state(StateVisitor& visitor) { shard_.visit_state(visitor); }

 private:
  struct Lane;
  struct Round;
  void work(Lane& lane, Round& round);
  /// Makes the updates of the samples that the lane has taken. False when training cannot go on; why is in the lane's
  /// report.
  bool make_updates(Lane& lane, Round& round, const Batch& samples, std::int64_t first_number);
  /// One update, of rows [first, first + rows). Whether it was made is in `applied`.
  bool update(Lane& lane, const Batch& samples, std::int64_t first, std::int64_t rows, const UpdateOptions& options,
              const Listener& listener, bool& applied);
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
