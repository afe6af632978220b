#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "config/run_config.h"
#include "plan/grid.h"

namespace distbelief {

/// "1 worker", "2 workers".
std::string counted(std::size_t count, const char* what);

/// "2 copies of 2 stages of 2 workers, 8 micro-batches".
std::string copies_text(const Grid& grid, std::int64_t micro_batches);

/// What the death of a server means, or of a worker that has one inside.
std::string copies_of_parameters_text(const RunConfig& config);

/// What the death of a worker means that has a part of a network.
std::string copies_of_parts_text(const Grid& grid, const RunConfig& config);

}  // namespace distbelief
