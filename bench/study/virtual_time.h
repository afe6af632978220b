#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/random.h"

namespace distbelief {

/// A clock for learners that compute side by side, in steps of random length around 1: it says whose step ends next.
/// The order of ends is a pure function of the seed and of the calls, so that no scheduler of a real machine has a part
/// in it. Lengths are lognormal: a learner is slow or fast for good (`learner_spread`), and each of its steps is longer
/// or shorter than its others (`step_spread`); both are standard deviations of the logarithm. One thread.
class VirtualTime {
 public:
  struct Spread {
    double learner = 0.1;
    double step = 0.2;
  };

  VirtualTime(int learners, std::uint64_t seed, Spread spread)
      : random_(seed, RandomUse::generate), spread_(spread), steps_(static_cast<std::size_t>(learners)) {}

  double now() const { return now_; }

  /// The learner begins its next step now; it has none under way.
  void begin(int learner) {
    const auto stream = static_cast<std::uint64_t>(learner);
    const std::uint64_t step = ++steps_[static_cast<std::size_t>(learner)];
    // Index 0 of a learner's stream is its speed, from 1 on its steps.
    const double logarithm = spread_.learner * random_.normal(stream, 0) + spread_.step * random_.normal(stream, step);
    ends_.emplace(now_ + std::exp(logarithm), learner);
  }

  /// Moves the clock to the end of the step that ends first, and says whose it is. Some step is under way.
  int next_end() {
    check(!ends_.empty(), "somebody computes");
    const auto [time, learner] = ends_.top();
    ends_.pop();
    now_ = time;
    return learner;
  }

 private:
  using End = std::pair<double, int>;

  CounterRandom random_;
  Spread spread_;
  std::vector<std::uint64_t> steps_;  ///< begun so far, of each learner
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
  double now_ = 0;
};

}  // namespace distbelief
