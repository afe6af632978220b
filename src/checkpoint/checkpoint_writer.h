#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace distbelief {

/// Writes checkpoints while training goes on: begin() copies all that a checkpoint is made of, and a thread of its own
/// brings it to the disk. One is under way at a time; whoever has the next one waits for it. A checkpoint that cannot
/// be written is no reason to stop: the ones before stay, and the caller hears why. Used by one thread.
class CheckpointWriter {
 public:
  /// What became of one.
  struct Result {
    std::int64_t step = 0;
    std::optional<double> score = {};
    std::string problem = {};       ///< why it is not there; empty: it is
    std::string copy_problem = {};  ///< likewise of its copy in a second place
  };
  /// Brings a checkpoint to its place; throws FileError. Called on the writer's thread.
  using Place = std::function<void(const CheckpointState& state)>;
  /// `copy` is empty, or the second place, which gets it also when the first does not.
  CheckpointWriter(Place place, Place copy);
  /// Waits for what is under way.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// Waits for the one before. Returns when all of `state` has been copied, whose arrays are in memory.
  void begin(CheckpointState state);
  /// The same on the calling thread, for arrays that are read as they are written. Rethrows what they threw.
  Result write_now(const CheckpointState& state);
  /// Until nothing is under way.
  void wait();
  /// Of those that were begun, in order, since it was asked last. Rethrows what was no FileError.
  std::vector<Result> results();

 private:
  /// Replaces what the arrays borrow by copies of their own.
  void keep(std::vector<FloatArray>& arrays, std::size_t& used);
  Result bring(const CheckpointState& state) const;
  void run(const std::stop_token& stop);

  const Place place_;
  const Place copy_;
  std::vector<float> floats_;  ///< of what is under way; memory that is used again
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::optional<CheckpointState> under_way_;  // guarded by mutex_; the state itself is the thread's
  std::vector<Result> results_;               // guarded by mutex_
  std::exception_ptr failure_;                // guarded by mutex_
  std::jthread thread_;                       // last: it ends before the rest goes
};

}  // namespace distbelief
