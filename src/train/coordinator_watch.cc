#include "train/coordinator_watch.h"

#include <algorithm>
#include <utility>

namespace distbelief {
namespace {

/// Of one that lets others connect, and says nothing.
constexpr std::chrono::seconds kPatience{5};
/// Until one that was started listens: it may have to wait for a disk that is busy. Members wait for it 30 s.
constexpr std::chrono::seconds kBeginPatience{20};
/// Between two questions: then this process was away, or all of them.
constexpr std::chrono::seconds kAway{2};

}  // namespace

void CoordinatorWatch::ended(std::uint64_t term, Clock::time_point now) {
  ended_ = now;
  ended_term_ = term;
}

bool CoordinatorWatch::hangs(std::uint64_t term, Clock::time_point answered_at, Clock::time_point now) {
  if (now - std::exchange(asked_, now) > kAway) {
    came_back_ = now;
  }
  const bool is_silent = now >= std::max({ended_, answered_at, came_back_}) + kPatience;
  const bool is_late = term == ended_term_ && now >= std::max(ended_, came_back_) + kBeginPatience;
  return is_silent || is_late;
}

}  // namespace distbelief
