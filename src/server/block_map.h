#pragma once

#include <cstdint>
#include <vector>

#include "params/parameter_table.h"

namespace distbelief {

/// What a server owns, moves and answers for: a contiguous part of the flat parameter space, of one kind.
struct Block {
  Range range;            ///< both ends are multiples of ParameterTable::kAlignment
  bool averaged = false;  ///< statistics that are averaged, past every update rule

  std::int64_t bytes() const { return range.size() * static_cast<std::int64_t>(sizeof(float)); }
  friend bool operator==(const Block&, const Block&) = default;
};

/// Blocks [begin, end) of a map, by index.
struct BlockRun {
  int begin = 0;
  int end = 0;

  int size() const { return end - begin; }
  friend bool operator==(const BlockRun&, const BlockRun&) = default;
};

/// The flat parameter space cut into blocks that cover it exactly, in order. Blocks of a kind differ by at most
/// kAlignment floats and begin where they fall, inside a layer or not: a load can only be balanced in pieces that are
/// small beside it, whatever the layers are. A function of the table's sizes and the number of servers at the start, so
/// that every process cuts alike without a word; the map stays when servers come and go. Immutable, hence thread-safe.
class BlockMap {
 public:
  /// Blocks for each server, and in all, where the space is large enough for them.
  static constexpr std::int64_t kBlocksPerServer = 64;
  static constexpr std::int64_t kFewestBlocks = 256;
  /// Floats of a block. Smaller only if all parameters of its kind are fewer.
  static constexpr std::int64_t kSmallest = 1024;
  static constexpr std::int64_t kLargest = 1024 * 1024;

  BlockMap(const ParameterTable& table, int servers);

  const std::vector<Block>& blocks() const { return blocks_; }
  /// The block that holds a place of the space.
  int block_of(std::int64_t place) const;
  /// The blocks that share a place with the range, which lies in the space; none for an empty one.
  BlockRun blocks_touching(Range range) const;

 private:
  void cut(Range range, bool averaged, std::int64_t wanted_size);

  std::vector<Block> blocks_;
};

}  // namespace distbelief
