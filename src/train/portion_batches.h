#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>

#include "data/dataset.h"
#include "data/read_ahead.h"
#include "data/sampler.h"
#include "server/wire.h"

namespace distbelief {

/// A worker's batches of the portions that it computes, evaluation after evaluation. Where reading costs more than a
/// copy, threads read ahead, and what was read is kept for the next evaluation as far as there is room: a worker is
/// mostly given the portions that it had. One thread.
class PortionBatches {
 public:
  struct Options {
    std::int64_t batch = 128;
    std::optional<int> loader_threads = std::nullopt;  ///< see LoaderOptions
    std::size_t most_kept_bytes = 0;
  };
  /// Data set and sampler are borrowed.
  PortionBatches(const Dataset& dataset, const Sampler& sampler, const Options& options);

  /// These are wanted next, after all that was.
  void want(const SampleRun& samples);
  /// The next batch of what is wanted, valid until the next call; null at the end of each run of samples.
  const Batch* next();
  /// Nothing is wanted any more.
  void drop();

  /// Time that there was no batch at once.
  double wait_seconds() const { return wait_seconds_; }
  /// Samples that did not have to be read again.
  std::int64_t kept_samples() const { return kept_samples_; }

 private:
  struct Wanted {
    BatchPlace place;
    bool last = false;     ///< of its run
    bool planned = false;  ///< threads read it, or will
  };
  void plan();
  void keep(const BatchPlace& place, const Batch& batch);

  const Dataset& dataset_;
  const Sampler& sampler_;
  const Options options_;
  std::optional<ReadAhead> ahead_;
  std::deque<Wanted> wanted_;
  bool ended_ = false;                   ///< the batch before was the last of its run
  std::map<std::uint64_t, Batch> kept_;  ///< by position; empty where reading is cheap
  std::size_t kept_bytes_ = 0;
  Batch batch_;
  std::vector<std::uint64_t> ids_;
  double wait_seconds_ = 0;
  std::int64_t kept_samples_ = 0;
};

}  // namespace distbelief
