#pragma once

#include <algorithm>
#include <set>

#include "base/test_deadline.h"

namespace distbelief {

/// For tests: at which of `posts` messages somebody dies: at each of a step or more in the middle, and at some from the
/// first to the last.
inline std::set<int> moments_of_death(int posts, int in_a_row, int elsewhere) {
  in_a_row = tries(in_a_row);
  elsewhere = std::max(2, tries(elsewhere));
  std::set<int> moments;
  for (int i = 0; i < in_a_row; ++i) {
    moments.insert(posts / 2 + i);
  }
  for (int i = 0; i < elsewhere; ++i) {
    moments.insert(1 + i * (posts - 1) / (elsewhere - 1));
  }
  return moments;
}

}  // namespace distbelief
