#include "comm/collective_table.h"

#include <bit>

namespace distbelief {

Group::Algorithm all_reduce_algorithm(std::size_t bytes, int members) {
  // Up to 2 KB a message goes with its envelope in shared memory, so that fewer steps win.
  constexpr std::size_t kKilobyte = 1024;
  if (bytes <= 2 * kKilobyte) {
    return Group::Algorithm::doubling;
  }
  if (members == 2) {
    return Group::Algorithm::ring;  // which is halving then, too
  }
  // Other numbers than powers of two cost halving one more copy of all data.
  const bool power_of_two = std::has_single_bit(static_cast<unsigned>(members));
  return power_of_two || bytes <= 256 * kKilobyte ? Group::Algorithm::halving : Group::Algorithm::ring;
}

}  // namespace distbelief
