#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plan/grid.h"

namespace distbelief {

/// --shares that are measured before training.
inline constexpr std::string_view kMeasuredShares = "auto";

/// What --shares says, for each process of a copy, stage by stage: "3,1" is the same for every stage, "3,1/1,1" one for
/// each. Empty: equal ones, as nothing says, and as long as they are to be measured. Throws InputError.
std::vector<double> parse_shares(const std::string& text, const Grid& grid);

/// Shares in proportion to the speeds of the workers of a grid, as --shares writes them. Of the workers that have the
/// same part of each copy the slowest counts. Speeds that hardly differ count as the same.
std::string shares_by_speed(const Grid& grid, std::span<const std::uint64_t> speeds);

}  // namespace distbelief
