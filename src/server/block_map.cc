#include "server/block_map.h"

#include <algorithm>

#include "base/check.h"

namespace distbelief {

namespace {

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

BlockMap::BlockMap(const ParameterTable& table, int servers) {
  check(servers > 0, "blocks are cut for at least one server");
  const std::int64_t wanted = std::max(kFewestBlocks, kBlocksPerServer * servers);
  const std::int64_t size = std::clamp(divide_up(table.size(), wanted), kSmallest, kLargest);
  cut({0, table.optimized_size()}, false, size);
  cut({table.optimized_size(), table.size()}, true, size);
}

void BlockMap::cut(Range range, bool averaged, std::int64_t wanted_size) {
  constexpr std::int64_t kUnit = ParameterTable::kAlignment;
  if (range.size() == 0) {
    return;
  }
  const std::int64_t nearest = (range.size() + wanted_size / 2) / wanted_size;
  const std::int64_t fewest = divide_up(range.size(), kLargest);
  const std::int64_t most = std::max<std::int64_t>(range.size() / kSmallest, 1);
  const std::int64_t count = std::clamp(nearest, fewest, most);
  // The first blocks take one unit more, as many of them as there are units left over.
  const std::int64_t units = range.size() / kUnit;
  std::int64_t begin = range.begin;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t end = begin + (units / count + (i < units % count ? 1 : 0)) * kUnit;
    blocks_.push_back({{begin, end}, averaged});
    begin = end;
  }
  check(begin == range.end, "blocks cover the space");
}

int BlockMap::block_of(std::int64_t place) const {
  check(!blocks_.empty() && place >= 0 && place < blocks_.back().range.end, "a place outside the parameter space");
  const auto after = std::upper_bound(blocks_.begin(), blocks_.end(), place,
                                      [](std::int64_t p, const Block& block) { return p < block.range.begin; });
  return static_cast<int>(after - blocks_.begin()) - 1;
}

BlockRun BlockMap::blocks_touching(Range range) const {
  check(range.begin <= range.end, "a range that ends before it begins");
  if (range.size() == 0) {
    return {};
  }
  return {block_of(range.begin), block_of(range.end - 1) + 1};
}

}  // namespace distbelief
