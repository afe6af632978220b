#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "strategy/strategy.h"

namespace distbelief {

// A batch that is shared out by what workers can do. All members of a group get the same numbers with each step and
// compute the same shares of them, in whole numbers, so that nobody has to tell anybody.

/// Nearly equal shares, as a loader that is told nothing cuts them.
std::vector<std::int64_t> equal_shares(std::int64_t batch, std::size_t members);

/// Samples for each member, so that the one that needs longest is done as early as can be: nearly in proportion to
/// `speeds`, in which only proportions count. They add up to the batch, and who is faster has no less. Shares are
/// multiples of share_unit(), but one that has what is left over, so that there are few different ones: for each the
/// network is compiled. Nobody has less than a unit, or more than four times an equal share; a batch that is too small
/// for that is shared equally.
/// With `before`, also nobody's becomes less than half or more than twice what it was.
std::vector<std::int64_t> proportional_shares(std::int64_t batch, std::span<const std::uint64_t> speeds,
                                              std::span<const std::int64_t> before = {});
/// About a 64th of the batch.
std::int64_t share_unit(std::int64_t batch, std::size_t members);

/// Finds better shares from what steps have cost. Looks at windows of steps, of which the median counts, and changes
/// nothing for the little that might be noise; the longer in vain, the longer the windows. One thread.
class BatchBalance {
 public:
  /// `always`: also where all members are on one host.
  BatchBalance(std::vector<std::int64_t> shares, bool always);

  struct Change {
    std::vector<std::int64_t> shares;   ///< from the next step on
    std::vector<std::uint64_t> speeds;  ///< that were measured, in samples a second
  };
  /// What all members have told of a step.
  std::optional<Change> heard(std::span<const StepCosts> costs);

  const std::vector<std::int64_t>& shares() const { return shares_; }

 private:
  std::optional<Change> look();
  void begin_window();

  std::vector<std::int64_t> shares_;
  const bool always_;
  int to_skip_ = 0;                                ///< steps for which programs are compiled
  std::uint64_t least_ = 0;                        ///< nanoseconds of a window
  std::uint64_t window_ = 0;                       ///< of this one so far
  std::vector<std::vector<std::uint64_t>> times_;  ///< nanoseconds, of each member, of steps of the window
  std::size_t steps_ = 0;
};

/// "worker 0 51, worker 1 51, worker 2 26: worker 2 takes 2.0 times as long a sample". `workers` are their numbers.
std::string shares_text(std::span<const int> workers, std::span<const std::int64_t> shares,
                        std::span<const std::uint64_t> speeds);

}  // namespace distbelief
