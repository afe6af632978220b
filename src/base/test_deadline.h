#pragma once

#include "base/clock.h"

namespace distbelief {

/// For tests: how many times as long what is sanitized takes. Who tries something at many moments tries so many fewer
/// then: what sanitizers look for is not in a single one.
#ifdef DISTBELIEF_SANITIZED
inline constexpr int kSlowness = 5;
#else
inline constexpr int kSlowness = 1;
#endif
/// How many of so many.
template <typename Integer>
constexpr Integer tries(Integer all) {
  return (all + Integer{kSlowness} - 1) / Integer{kSlowness};
}

/// For tests: by when what must happen has happened.
inline Clock::time_point soon() { return Clock::now() + std::chrono::seconds(60); }

}  // namespace distbelief
