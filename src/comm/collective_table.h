#pragma once

#include <cstddef>

#include "comm/group.h"

namespace distbelief {

/// Which all-reduce for so many bytes and members: the fastest in bench/collectives.py, never a measurement during the
/// run, so that equal runs give equal bits.
Group::Algorithm all_reduce_algorithm(std::size_t bytes, int members);

}  // namespace distbelief
