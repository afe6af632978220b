#pragma once

#include <cstddef>
#include <vector>

namespace distbelief {

/// A piece of memory and the steps, first to last and both included, in which its contents matter.
struct Lifetime {
  std::size_t bytes = 0;
  int first = 0;
  int last = 0;
};

struct ArenaPlan {
  std::vector<std::size_t> offsets;  ///< of each piece; multiples of 64
  std::size_t bytes = 0;             ///< of the whole arena
};

/// Places pieces in one arena so that pieces alive at the same time do not overlap: the largest first, each at the
/// lowest offset that is free for its whole life.
ArenaPlan place_in_arena(const std::vector<Lifetime>& pieces);

}  // namespace distbelief
