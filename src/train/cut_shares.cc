#include "train/cut_shares.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/check.h"
#include "base/error.h"
#include "base/split.h"

namespace distbelief {
namespace {

constexpr double kSteps = 20;       ///< a share is so many parts of the fastest worker's, rounded
constexpr double kAlmostOne = 0.9;  ///< what two measurements of the same machine may differ by

}  // namespace

std::vector<double> parse_shares(const std::string& text, const Grid& grid) {
  if (text.empty() || text == kMeasuredShares) {
    return {};
  }
  const std::vector<std::string> stages = split(text, '/');
  if (stages.size() != 1 && stages.size() != static_cast<std::size_t>(grid.stages)) {
    throw InputError(
        fmt::format("--shares {}: shares of {} stages, where there are {}", text, stages.size(), grid.stages));
  }
  std::vector<double> shares;
  for (const std::string& stage : stages) {
    const std::vector<std::string> words = split(stage, ',');
    for (const std::string& word : words) {
      double share = 0;
      const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), share);
      if (error != std::errc() || stop != word.data() + word.size() || !(share > 0 && share <= 1e6)) {
        throw InputError(
            fmt::format("--shares {}: expected auto or numbers above 0 such as 3,1, got '{}'", text, word));
      }
      shares.push_back(share);
    }
    if (words.size() != static_cast<std::size_t>(grid.tensor)) {
      throw InputError(fmt::format("--shares {}: {} shares, where there {} for each stage", text, words.size(),
                                   grid.tensor == 1 ? "is one worker" : fmt::format("are {} workers", grid.tensor)));
    }
  }
  const std::vector<double> first = shares;
  for (int stage = static_cast<int>(stages.size()); stage < grid.stages; ++stage) {
    shares.insert(shares.end(), first.begin(), first.end());
  }
  return shares;
}

std::string shares_by_speed(const Grid& grid, std::span<const std::uint64_t> speeds) {
  check(std::ssize(speeds) == grid.processes(), "a speed of each worker");
  std::vector<std::string> stages;
  for (int stage = 0; stage < grid.stages; ++stage) {
    std::vector<double> slowest(static_cast<std::size_t>(grid.tensor), INFINITY);
    for (int process = 0; process < grid.processes(); ++process) {
      const GridPlace place = place_in(grid, process);
      if (place.stage == stage) {
        double& own = slowest[static_cast<std::size_t>(place.tensor)];
        own = std::min(own, static_cast<double>(speeds[static_cast<std::size_t>(process)]));
      }
    }
    const double fastest = std::max(1.0, std::ranges::max(slowest));
    std::vector<std::string> shares;
    for (const double speed : slowest) {
      const double share = speed / fastest;
      shares.push_back(share >= kAlmostOne ? "1"
                                           : fmt::format("{:g}", std::max(1.0, std::round(share * kSteps)) / kSteps));
    }
    stages.push_back(fmt::format("{}", fmt::join(shares, ",")));
  }
  const bool alike = std::ranges::all_of(stages, [&](const std::string& stage) { return stage == stages.front(); });
  return alike ? stages.front() : fmt::format("{}", fmt::join(stages, "/"));
}

}  // namespace distbelief
