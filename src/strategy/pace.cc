#include "strategy/pace.h"

#include <algorithm>

namespace distbelief {
namespace {

// Shares of a worker's time. Halving what is exchanged about halves the wait, so that between the two bounds there must
// be more than a factor of 2, or it would go back and forth.
constexpr double kTooMuch = 0.1;
constexpr double kHardlyAny = 0.02;

template <typename Number>
Number next(Number now, Number most, double share) {
  return share > kTooMuch ? std::min(2 * now, most) : share < kHardlyAny ? std::max(now / 2, Number{1}) : now;
}

}  // namespace

bool Pace::note(const Times& times) {
  const double all = times.all - before_.all;
  if (all < options_.least_seconds) {
    return false;
  }
  const int batches = next(batches_, options_.most_batches, (times.links - before_.links) / all);
  const std::int64_t units = next(units_of_lease_, options_.most_units_of_lease, (times.leases - before_.leases) / all);
  before_ = times;
  const bool changed = batches != batches_ || units != units_of_lease_;
  batches_ = batches;
  units_of_lease_ = units;
  return changed;
}

}  // namespace distbelief
