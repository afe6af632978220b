#pragma once

#include <cstdint>
#include <limits>
#include <mutex>
#include <optional>
#include <vector>

#include "data/dataset.h"
#include "data/read_ahead.h"
#include "data/sampler.h"

namespace distbelief {

/// Threads that read this data set ahead when nobody has said how many: none for a cheap() one, otherwise 2.
int usual_loader_threads(const Dataset& dataset);

struct LoaderOptions {
  std::int64_t batch = 128;
  /// Threads that read ahead; 0 reads on the calling thread. When not set: usual_loader_threads().
  std::optional<int> threads = std::nullopt;
  int prefetch = 4;            ///< batches that may wait, ready, for the consumer
  std::uint64_t epoch = 0;     ///< where to start: this epoch,
  std::uint64_t position = 0;  ///< with this many of its samples already done
  std::uint64_t end_epoch =
      std::numeric_limits<std::uint64_t>::max();  ///< nothing is read of this epoch and later ones
  bool drop_last = false;  ///< leave out an epoch's last batch when it is smaller than the others
  /// This loader reads only share `part` of the `parts` nearly equal shares of each batch. All parts see equally many
  /// batches; a share may be empty when an epoch's last batch has fewer samples than there are parts.
  int part = 0;
  int parts = 1;
  /// Samples of a whole batch that each part reads, where they are not nearly equal; smaller batches are cut likewise.
  std::vector<std::int64_t> shares = {};
};

/// How many of `size` samples are before part `part` of `parts`, when they are cut in nearly equal shares.
constexpr std::uint64_t samples_before_part(std::uint64_t size, std::uint64_t part, std::uint64_t parts) {
  return size * part / parts;
}

/// Hands out the batches of epoch after epoch in the exact order of the sampler, whatever the timing of its threads.
/// Later epochs begin behind what the sampler says is done of them.
/// Threads read ahead over the end of an epoch, so that the next one starts without waiting. For one consumer thread,
/// or several that share the batches out by take().
/// The data set must outlive the loader; destruction waits for at most the batches that are being read.
class Loader {
 public:
  /// Throws InputError when options do not fit the data set.
  Loader(const Dataset& dataset, const Sampler& sampler, const LoaderOptions& options);
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// The next batch, valid until the next call. Null at the end of an epoch; the call after that begins the next epoch
  /// (at end_epoch it stays null). Rethrows what reading this batch threw; the batches before it have been handed out.
  const Batch* next();
  /// For several consumers: reads the next batches of the epoch, at most `most`, into one, on the calling thread; or
  /// takes one that was read ahead. Which consumer gets which depends on who comes first. False at the end of an epoch,
  /// until next() has said so too. What next() returned is no longer valid. Throws as next() does. Thread-safe, but not
  /// against next(); only for a loader of whole batches (parts = 1).
  bool take(Batch& batches, std::int64_t most);

  /// Where a new loader must start in order to hand out what this one would hand out next.
  std::uint64_t epoch() const { return consumer_.epoch; }
  std::uint64_t position() const { return consumer_.position; }
  /// Samples handed out so far.
  std::uint64_t leased() const { return leased_; }
  /// Time that next() did not have the batch at once: waiting for threads, or reading itself.
  double wait_seconds() const { return wait_seconds_; }

 private:
  /// Where reading stands; advance() tells what comes there.
  struct Cursor {
    std::uint64_t epoch = 0;
    std::uint64_t position = 0;
  };
  std::uint64_t batch_size(const Cursor& at) const;  // 0: the epoch ends here
  void advance(Cursor& at) const;
  /// This part's share of the batch.
  BatchPlace share(const Cursor& at) const;
  /// Plans as many batches as there is room for.
  void plan();
  void hand_out(const Batch& batch);

  const Dataset& dataset_;
  const Sampler sampler_;
  const LoaderOptions options_;
  std::vector<std::uint64_t> before_;  ///< of a whole batch, the samples before each part's; empty: equal shares

  // Of the consumer; of several: guarded by mutex_.
  std::mutex mutex_;
  Cursor consumer_;
  Cursor planned_;  ///< up to where batches were planned; with threads
  std::uint64_t leased_ = 0;
  double wait_seconds_ = 0;
  std::vector<std::uint64_t> ids_;
  Batch batch_;  ///< that next() lent
  std::optional<ReadAhead> ahead_;
};

}  // namespace distbelief
