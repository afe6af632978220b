#include "server/block_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace distbelief {
namespace {

void add(ParameterTable& table, std::int64_t floats, ParameterKind kind = ParameterKind::optimized) {
  ParameterSpec spec;
  spec.shape = {floats};
  spec.kind = kind;
  table.add("p" + std::to_string(table.entries().size()), spec);
}

/// One layer of so many floats, and statistics.
ParameterTable table_of(std::int64_t optimized, std::int64_t averaged = 0) {
  ParameterTable table;
  if (optimized > 0) {
    add(table, optimized);
  }
  if (averaged > 0) {
    add(table, averaged, ParameterKind::averaged);
  }
  return table;
}

std::int64_t smallest(const BlockMap& map) {
  std::int64_t least = map.blocks().front().range.size();
  for (const Block& block : map.blocks()) {
    least = std::min(least, block.range.size());
  }
  return least;
}

std::int64_t largest(const BlockMap& map) {
  std::int64_t most = 0;
  for (const Block& block : map.blocks()) {
    most = std::max(most, block.range.size());
  }
  return most;
}

TEST(BlockMap, CoversTheSpaceInOrderWithBlocksOfOneKind) {
  for (const std::int64_t optimized : {1, 1000, 1025, 79510, 3'000'001, 26'214'400}) {
    for (const std::int64_t averaged : {0, 10, 1500, 53120}) {
      for (const int servers : {1, 3, 16}) {
        const ParameterTable table = table_of(optimized, averaged);
        const BlockMap map(table, servers);
        std::int64_t place = 0;
        for (const Block& block : map.blocks()) {
          EXPECT_EQ(block.range.begin, place);
          EXPECT_GT(block.range.size(), 0);
          EXPECT_EQ(block.range.end % ParameterTable::kAlignment, 0);
          EXPECT_EQ(block.averaged, place >= table.optimized_size());
          EXPECT_TRUE(block.averaged || block.range.end <= table.optimized_size()) << "a block of two kinds";
          place = block.range.end;
        }
        EXPECT_EQ(place, table.size()) << optimized << " " << averaged << " " << servers;
      }
    }
  }
}

TEST(BlockMap, CutsALargeLayerInsideForEveryServer) {
  const ParameterTable table = table_of(26'214'400);  // 100 MB
  EXPECT_EQ(BlockMap(table, 1).blocks().size(), 256U);
  EXPECT_EQ(BlockMap(table, 4).blocks().size(), 256U);
  EXPECT_EQ(BlockMap(table, 16).blocks().size(), 1024U);
  EXPECT_LE(largest(BlockMap(table, 16)) - smallest(BlockMap(table, 16)), ParameterTable::kAlignment);
}

TEST(BlockMap, MakesNoBlockTooLargeToMove) {
  const BlockMap map(table_of(std::int64_t{1} << 30), 1);  // 4 GB
  EXPECT_EQ(largest(map), BlockMap::kLargest);
  EXPECT_EQ(map.blocks().size(), 1024U);
  EXPECT_LE(largest(BlockMap(table_of((std::int64_t{1} << 30) + 1), 1)), BlockMap::kLargest);
}

TEST(BlockMap, GivesASmallModelFewBlocks) {
  EXPECT_EQ(BlockMap(table_of(7850), 4).blocks().size(), 7U);
  EXPECT_GE(smallest(BlockMap(table_of(7850), 4)), BlockMap::kSmallest);
  EXPECT_GE(smallest(BlockMap(table_of(262'143), 16)), BlockMap::kSmallest);
  EXPECT_EQ(BlockMap(table_of(3), 16).blocks(), (std::vector<Block>{{{0, 16}, false}}));
  EXPECT_EQ(BlockMap(table_of(3, 20), 16).blocks(), (std::vector<Block>{{{0, 16}, false}, {{16, 48}, true}}));
  EXPECT_EQ(BlockMap(table_of(0, 20), 2).blocks(), (std::vector<Block>{{{0, 32}, true}}));
  EXPECT_TRUE(BlockMap(table_of(0), 2).blocks().empty());
}

TEST(BlockMap, DependsOnSizesAndServersOnly) {
  ParameterTable layers;
  for (const std::int64_t floats : {64000, 16, 320000, 16000}) {
    add(layers, floats);
  }
  EXPECT_EQ(BlockMap(layers, 3).blocks(), BlockMap(table_of(400'016), 3).blocks());
}

TEST(BlockMap, FindsTheBlockOfEveryPlace) {
  const ParameterTable table = table_of(20'000, 3000);
  const BlockMap map(table, 1);
  for (std::int64_t place = 0; place < table.size(); ++place) {
    const int index = map.block_of(place);
    const Range range = map.blocks()[static_cast<std::size_t>(index)].range;
    ASSERT_TRUE(range.begin <= place && place < range.end) << place;
  }
}

TEST(BlockMap, FindsTheBlocksThatARangeTouches) {
  const ParameterTable table = table_of(4096, 2048);
  const BlockMap map(table, 1);
  ASSERT_EQ(map.blocks().size(), 6U);
  EXPECT_EQ(map.blocks_touching(table.everything()), (BlockRun{0, 6}));
  EXPECT_EQ(map.blocks_touching({1024, 2048}), (BlockRun{1, 2}));
  EXPECT_EQ(map.blocks_touching({1023, 2049}), (BlockRun{0, 3}));
  EXPECT_EQ(map.blocks_touching({4095, 4097}), (BlockRun{3, 5}));
  EXPECT_EQ(map.blocks_touching({6143, 6144}), (BlockRun{5, 6}));
  EXPECT_EQ(map.blocks_touching({6144, 6144}).size(), 0);
}

}  // namespace
}  // namespace distbelief
