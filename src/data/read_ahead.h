#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

#include "data/dataset.h"
#include "data/sampler.h"

namespace distbelief {

/// Samples that follow one another in the sampler's order of an epoch and are read together.
struct BatchPlace {
  std::uint64_t epoch = 0;
  std::uint64_t position = 0;
  std::uint64_t size = 0;
};

/// Reads them on the calling thread; `ids` is only memory to use again. Throws as Dataset::read() does. Thread-safe.
void read_batch(const Dataset& dataset, const Sampler& sampler, const BatchPlace& place,
                std::vector<std::uint64_t>& ids, Batch& batch);

/// Threads that read the batches that are planned and hand them out in the order of the plan, whatever their timing.
/// Used by one thread at a time. Data set and sampler are borrowed; destruction waits for at most the batches that are
/// being read.
class ReadAhead {
 public:
  /// At least one thread. At most `most` batches are planned at a time; at least one for each thread.
  ReadAhead(const Dataset& dataset, const Sampler& sampler, int threads, int most);
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  /// One more may be planned.
  bool has_room() const { return planned_ - taken_ < slots_.size(); }
  void plan(const BatchPlace& place);
  /// The first of the plan that was not taken, which must exist; waits until it is there. Rethrows what reading it
  /// threw, and then does so whenever it is asked again.
  void take(Batch& batch);
  /// Forgets the plan; waits for at most the batches that are being read.
  void drop();

 private:
  struct Slot {
    BatchPlace place;
    Batch batch;
    std::exception_ptr error;
    bool ready = false;  // guarded by mutex_; while it is false the slot is the reading thread's
  };
  Slot& slot(std::uint64_t ticket) { return slots_[ticket % slots_.size()]; }
  void run(const std::stop_token& stop);

  const Dataset& dataset_;
  const Sampler& sampler_;
  std::vector<Slot> slots_;  // each batch of the plan is a ticket, read into slot ticket % slots_.size()

  std::mutex mutex_;
  std::condition_variable_any changed_;
  // Guarded by mutex_, but only the user changes the first and the last: it may read them without.
  std::uint64_t planned_ = 0;
  std::uint64_t claimed_ = 0;  // tickets that threads have begun
  std::uint64_t taken_ = 0;
  std::vector<std::jthread> threads_;  // last: they stop before the rest goes
};

}  // namespace distbelief
