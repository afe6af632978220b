#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "data/dataset.h"
#include "data/read_ahead.h"
#include "data/sampler.h"
#include "strategy/strategy.h"
#include "train/lease_source.h"

namespace distbelief {

/// A worker's batches of the samples that it has leased, in units that are pushed whole, one or several at a time. A
/// lease is complete when the last of its units is reported. Where reading costs more than a copy, threads read the
/// batches of a lease ahead. One thread, but for take().
class LeasedBatches : public BatchStream {
 public:
  struct Options {
    std::int64_t batch = 128;
    std::int64_t batches_per_unit = 1;
    std::int64_t units_per_lease = 8;
    std::int64_t units_per_push = 1;
    std::optional<int> loader_threads = std::nullopt;  ///< these two: see LoaderOptions
    int prefetch = 4;
    /// Reports the last unit of a lease whose holder died when all was done but said, while nothing is on its way.
    /// False: it could not.
    std::function<bool(const UnitReport&)> inherited = {};
    /// How long next() waits for a lease before it gives back null, so that the caller finishes what it has begun.
    Clock::duration patience = std::chrono::milliseconds(20);
  };
  /// All but `options` are borrowed.
  LeasedBatches(const Dataset& dataset, const Sampler& sampler, LeaseSource& leases, const Options& options);

  const Batch* next() override;
  bool take(Batch& batches, std::int64_t most) override;
  PushUnit unit() const override { return unit_; }
  void reported(const PushUnit& unit) override;
  bool refused(const PushUnit& unit) override;
  void leased_by_others(std::span<const std::uint64_t> /*ids*/) override {}
  void applied(std::span<const std::uint64_t> /*ids*/) override {}
  void dropped(std::span<const std::uint64_t> /*ids*/) override {}

  /// From the next lease and push on.
  void set_amounts(std::int64_t units_per_lease, std::int64_t units_per_push);

  /// There will be no more batches: every lease of every epoch is done.
  bool finished() const { return finished_; }
  std::int64_t epoch() const { return lease_ ? lease_->epoch : unit_.samples.epoch; }
  /// Time that there was no batch at once: waiting for leases and for threads that read, or reading itself.
  double wait_seconds() const { return wait_seconds_; }
  /// From asking to getting, of all leases that were given.
  double lease_seconds() const { return lease_seconds_; }

 private:
  std::int64_t unit_samples() const { return options_.batch * options_.batches_per_unit; }
  bool begin_lease();
  bool report_inherited();
  /// Of the lease, from there on.
  BatchPlace place_at(std::int64_t position) const;
  /// Plans as many batches of the lease as there is room for.
  void plan();
  /// So many samples more of the lease were handed out.
  void move_on(std::int64_t samples);

  const Dataset& dataset_;
  const Sampler& sampler_;
  LeaseSource& leases_;
  Options options_;
  std::optional<Lease> lease_;      ///< that batches are taken from
  std::optional<Lease> inherited_;  ///< all of it is done, and not reported
  std::int64_t position_ = 0;       ///< samples of it that were handed out
  std::int64_t planned_ = 0;        ///< and that threads were told to read
  std::int64_t push_begin_ = 0;     ///< these two: of the push that is being handed out
  std::int64_t push_units_ = 1;
  std::map<std::uint64_t, std::uint64_t> units_of_lease_;  ///< of leases that are not complete
  bool finished_ = false;
  PushUnit unit_;
  Batch batch_;
  std::vector<std::uint64_t> ids_;
  double wait_seconds_ = 0;
  double lease_seconds_ = 0;
  std::optional<Clock::time_point> asked_at_;  ///< there is no answer yet
  std::mutex mutex_;                           ///< of those who take()
  std::optional<ReadAhead> ahead_;
};

}  // namespace distbelief
