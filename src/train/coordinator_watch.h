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

  /// The one of this term ended, or is about to. 0, here and below: of none that was ever heard.
  void ended(std::uint64_t term, Clock::time_point now);
  /// To be asked some times a second. `term`: of the one that was heard last; `answered_at`: see Member.
  bool hangs(std::uint64_t term, Clock::time_point answered_at, Clock::time_point now);

 private:
  Clock::time_point ended_ = {};  // the one before this one
  std::uint64_t ended_term_ = 0;
  Clock::time_point asked_ = {};
  Clock::time_point came_back_ = {};  // this process, which was stopped itself, or has only begun to watch
};

}  // namespace distbelief
