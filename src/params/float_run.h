#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace distbelief {

/// Neighbouring floats: places [begin, begin + count), counted from wherever their owner says.
struct FloatRun {
  std::uint32_t begin = 0;
  std::uint32_t count = 0;

  std::uint64_t end() const { return std::uint64_t{begin} + count; }
  friend bool operator==(const FloatRun&, const FloatRun&) = default;
};

inline std::size_t floats_of_runs(std::span<const FloatRun> runs) {
  std::size_t floats = 0;
  for (const FloatRun& run : runs) {
    floats += run.count;
  }
  return floats;
}

/// Places of a range of the flat space: runs, ascending, none of which share a place.
struct FloatRuns {
  std::span<const FloatRun> runs = {};
  std::uint32_t origin = 0;  ///< what the first place of the range is called in them
};

/// A gradient over a range that is 0 but for some runs.
struct GradientRuns {
  FloatRuns places = {};
  std::span<const float> floats = {};  ///< those of the runs, one after the other
};

}  // namespace distbelief
