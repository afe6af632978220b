#pragma once

#include <cstdint>

namespace distbelief {

/// How often a worker exchanges, and how much it leases at a time, learned from what it spends its time with (EDT's
/// idea: few tasks in flight at first, then as many as links and cores bear). Both begin small, where gradients are
/// fresh and samples go to whoever is fast. Who waits for links exchanges half as often, up to a limit; who hardly
/// waits exchanges more often again. The same holds for leases, apart. A decision is made of the time since the one
/// before, when that was long enough to say something. Knows no clock. One thread.
class Pace {
 public:
  struct Options {
    int most_batches = 32;  ///< between two exchanges
    std::int64_t most_units_of_lease = 32;
    double least_seconds = 0.2;  ///< that a decision is made of
  };
  Pace() : Pace(Options{}) {}
  explicit Pace(const Options& options) : options_(options) {}

  /// What this worker has done in all, in seconds since it began: `links` and `leases` are what it waited for.
  struct Times {
    double all = 0;
    double links = 0;
    double leases = 0;
  };
  /// True when something is decided anew.
  bool note(const Times& times);

  /// Batches between two exchanges, and units of a lease.
  int batches() const { return batches_; }
  std::int64_t units_of_lease() const { return units_of_lease_; }

 private:
  const Options options_;
  Times before_;
  int batches_ = 1;
  std::int64_t units_of_lease_ = 1;
};

}  // namespace distbelief
