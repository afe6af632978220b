#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

#include "base/clock.h"

namespace distbelief {

/// Finds out that the coordinator hangs, or was stopped, for who started it and will start it again: it is to be
/// killed, before the members of the job give it up, after 8 s (JoinRequest::coordinator_limit). One thread.
class CoordinatorWatch {
 public:
  static constexpr std::string_view kVerdict = "the coordinator has not answered for 5 s: it is killed";

  /// It was heard at that moment, in this term: said again and again, as a Member knows it.
  void heard(std::uint64_t term, Clock::time_point at);
  /// Likewise, of one that has answered since the last ended, in whatever term.
  void heard_anew(Clock::time_point at);
  /// The one that was heard ended, or is about to: another begins.
  void ended(Clock::time_point now);
  /// This thread was to sleep for a moment. If it was longer it was stopped, and knows nothing of what was said since.
  void woke(Clock::time_point fell_asleep, Clock::time_point now);

  bool hangs(Clock::time_point now) const;

 private:
  bool begins_ = true;  // and has not been heard yet
  std::uint64_t term_ = 0;
  Clock::time_point heard_ = {};
  Clock::time_point began_ = Clock::now();  // it, or this watch, or this thread after a long sleep
};

}  // namespace distbelief
