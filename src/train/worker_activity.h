#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "cluster/membership.h"
#include "exec/compute_watch.h"
#include "metrics/progress.h"

namespace distbelief {

/// What a worker is doing at this moment, for the heartbeats that carry it to the coordinator: the training thread
/// writes at every change, which costs next to nothing, and any thread reads.
class WorkerActivity {
 public:
  enum class Kind : std::uint8_t {
    starting,            ///< opens data and model
    meeting,             ///< gets the leader's state
    loading,             ///< waits for its own data
    stepping,            ///< computes, or waits for others: the replica's watch tells
    evaluating,          ///< its part of validation or test data
    gathering,           ///< waits for the others' parts
    writing_checkpoint,  ///< while others wait
    serving,             ///< a parameter server that has no other part
    ending,
  };
  /// `steps` are done.
  void begin(Kind kind, std::int64_t steps);
  void stepped(const ProgressState& state);
  /// A step, or some, have taken so long.
  void spent(const StepTimes& times);
  /// So many samples of each batch are this worker's.
  void shares_batch(std::int64_t rows) { share_.store(rows, std::memory_order_relaxed); }

  /// For ReplicaOptions.
  ComputeWatch& compute() { return compute_; }
  const ComputeWatch& compute() const { return compute_; }

  Progress progress() const;

 private:
  ComputeWatch compute_;
  std::atomic<Kind> kind_ = Kind::starting;
  std::atomic<std::int64_t> steps_ = 0;
  std::atomic<std::int64_t> epoch_ = 0;
  std::atomic<std::int64_t> share_ = 0;
  std::atomic<double> samples_per_second_ = 0;
  std::atomic<double> loss_ = 0;
  mutable std::mutex mutex_;
  StepTimes times_;  // guarded by mutex_
};

}  // namespace distbelief
