#include "comm/collective_table.h"

namespace distbelief {

Group::Algorithm all_reduce_algorithm(std::size_t bytes, int members) {
  constexpr std::size_t kKilobyte = 1024;
  if (members <= 2) {
    return bytes <= 16 * kKilobyte ? Group::Algorithm::doubling : Group::Algorithm::ring;
  }
  if (bytes <= 8 * kKilobyte) {
    return Group::Algorithm::doubling;
  }
  return bytes <= 256 * kKilobyte ? Group::Algorithm::halving : Group::Algorithm::ring;
}

}  // namespace distbelief
