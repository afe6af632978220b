#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/group.h"
#include "strategy/strategy.h"

namespace distbelief {

/// Finds out whose links hold up a group that makes each step together. There all wait for each other, whatever the
/// cause; but when also the member that waits least does so for a good part of its time, nobody's computing is the
/// cause and messages are. Only then are links measured, by small messages to and fro: a member whose messages are
/// clearly longer on their way to most of the others is the one. One thread.
class LinkWatch {
 public:
  /// What all members have told of a step. True, for all of them after the same step, when links are to be measured.
  bool heard(std::span<const StepCosts> costs);
  /// All members call it together, between steps.
  Outcome measure(Group& group, Clock::time_point deadline);
  /// Seconds of each step for which this member's links hold up the others, as far as is known; else 0.
  double held_up() const { return held_up_; }

 private:
  void begin();

  double held_up_ = 0;
  std::int64_t steps_ = 0;
  double took_ = 0;    ///< seconds of all steps,
  double waited_ = 0;  ///< and of these the least that a member waited
};

/// The shortest time of a message to and fro, in seconds, between this member and some others, those of nearby
/// positions; all members call it together.
Outcome measure_links(Group& group, Clock::time_point deadline, std::vector<double>& round_trips);

/// Which position's round trips are clearly longer than those of the others; -1 when nobody's are. `typical` has what
/// is typical for each.
int position_of_slow_links(std::span<const double> typical);

}  // namespace distbelief
