#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "params/float_run.h"
#include "params/parameter_table.h"
#include "params/touched_rows.h"
#include "server/block_map.h"

namespace distbelief {

/// What a sparse batch touches, as runs: its rows, and all of the parameters that have no rows; of neither what is
/// frozen. Found in a time that does not depend on how many rows there are. One thread.
class TouchedRuns {
 public:
  /// `table` and `map` are borrowed. `blocks`: the numbers of each server's blocks, ascending.
  TouchedRuns(const ParameterTable& table, const BlockMap& map, std::span<const std::vector<int>> blocks);

  /// Takes the place of what was found before.
  void find(std::span<const TouchedRows> touched);

  /// In the flat space.
  std::span<const FloatRun> flat() const { return flat_; }
  /// The Euclidean length of a gradient over the flat space, in what is touched and optimized.
  double norm(std::span<const float> gradient) const;

  struct OfServer {
    std::vector<FloatRun> runs;        ///< counted over the floats of the server's blocks; each inside one block
    std::vector<std::int64_t> places;  ///< where they begin in the flat space
    std::size_t floats = 0;            ///< of all of them
    std::size_t optimized = 0;         ///< the first so many runs; the others are averaged

    std::size_t bytes() const { return runs.size() * sizeof(FloatRun) + floats * sizeof(float); }
  };
  std::span<const OfServer> servers() const { return servers_; }
  /// The same for all that the server has: its blocks.
  const OfServer& everything_of(std::size_t server) const { return everything_[server]; }

 private:
  struct Owner {
    std::size_t server = 0;
    std::uint32_t first = 0;  ///< what the block's first float is called there
  };
  void append(std::int64_t begin, std::int64_t end);
  void cut();

  const ParameterTable& table_;
  const BlockMap& map_;
  std::vector<const ParameterEntry*> entries_;  ///< not frozen, as they lie in the flat space
  std::vector<Owner> owners_;                   ///< of each block
  std::vector<OfServer> everything_;

  std::vector<FloatRun> flat_;
  std::vector<OfServer> servers_;
  std::vector<std::int32_t> sorted_, other_;
};

}  // namespace distbelief
