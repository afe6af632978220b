#include "comm/collective_table.h"

namespace distbelief {

Group::Algorithm all_reduce_algorithm(std::size_t bytes, int members) {
  // Up to 2 KB a message goes with its envelope in shared memory, so that fewer steps win.
  constexpr std::size_t kKilobyte = 1024;
  if (bytes <= 2 * kKilobyte) {
    return Group::Algorithm::doubling;
  }
  return members > 2 && bytes <= 256 * kKilobyte ? Group::Algorithm::halving : Group::Algorithm::ring;
}

}  // namespace distbelief
