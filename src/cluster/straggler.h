#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "cluster/membership.h"

namespace distbelief {

/// A worker that takes clearly longer for its steps than the others, and what with.
struct Straggler {
  enum class Cause : std::uint8_t { computes, loads, link };
  std::uint64_t worker = 0;  ///< its id
  double factor = 1;         ///< times as long as the median of the others
  Cause cause = Cause::computes;
};

/// "takes 3.0 times as long for a step as the others: it computes slower".
std::string describe(const Straggler& straggler);

/// What a worker has spent, and on how many steps.
struct WorkerTimes {
  std::uint64_t worker = 0;
  StepTimes times = {};
};

/// Those that need `factor` times as long for a step as the median of the others does: for what is their own to do, not
/// for waiting for others. The cause is what they need so much more time for. Nobody, where one is alone or has made no
/// step.
std::vector<Straggler> find_stragglers(std::span<const WorkerTimes> workers, double factor);

/// Looks at workers all the time, and tells of a straggler once when it has been one for a while, again when the cause
/// is another, and once when it has not been one for a while. Knows no clock. One thread.
class StragglerWatch {
 public:
  /// For how long somebody is slow, or fast again, before it is told; 0: it never is.
  explicit StragglerWatch(Clock::duration after) : after_(after) {}

  struct News {
    std::uint64_t worker = 0;
    std::optional<Straggler> straggler = {};  ///< none: it is no longer one
  };
  /// What all workers have spent until now, since they began.
  std::vector<News> look(std::span<const WorkerTimes> workers, Clock::time_point now);

  /// Whom people know of.
  const Straggler* find(std::uint64_t worker) const;

 private:
  /// A window ends: what was spent in it.
  std::vector<News> judge(const std::vector<WorkerTimes>& spent);

  const Clock::duration after_;
  Clock::time_point began_ = {};
  std::map<std::uint64_t, StepTimes> at_begin_;  ///< of the window, by worker
  struct Slow {
    int windows = 0;  ///< in a row, and all for the same cause
    Straggler::Cause cause = Straggler::Cause::computes;
  };
  std::map<std::uint64_t, Slow> slow_;
  std::map<std::uint64_t, int> fast_;  ///< windows in a row
  std::map<std::uint64_t, Straggler> told_;
};

}  // namespace distbelief
