#include "server/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

namespace distbelief {
namespace {

using Ids = std::vector<std::uint64_t>;

void add(ParameterTable& table, Shape shape, ParameterKind kind = ParameterKind::optimized) {
  ParameterSpec spec;
  spec.shape = std::move(shape);
  spec.kind = kind;
  table.add("p" + std::to_string(table.entries().size()), spec);
}

void add_convolution(ParameterTable& table, std::int64_t from, std::int64_t to, std::int64_t kernel) {
  add(table, {to, from, kernel, kernel});
  add(table, {to});  // batch norm's scale and shift
  add(table, {to});
  add(table, {to}, ParameterKind::averaged);  // its mean and variance
  add(table, {to}, ParameterKind::averaged);
}

ParameterTable resnet50() {
  ParameterTable table;
  add_convolution(table, 3, 64, 7);
  std::int64_t channels = 64;
  std::int64_t width = 64;
  for (const int bottlenecks : {3, 4, 6, 3}) {
    for (int i = 0; i < bottlenecks; ++i) {
      add_convolution(table, channels, width, 1);
      add_convolution(table, width, width, 3);
      add_convolution(table, width, 4 * width, 1);
      if (i == 0) {
        add_convolution(table, channels, 4 * width, 1);  // the short cut
      }
      channels = 4 * width;
    }
    width *= 2;
  }
  add(table, {1000, channels});
  add(table, {1000});
  return table;
}

ParameterTable one_large_layer() {
  ParameterTable table;
  add(table, {64, 3, 5, 5});
  add(table, {5120, 5120});  // 100 MB
  add(table, {5120});
  add(table, {10, 5120});
  add(table, {64}, ParameterKind::averaged);
  return table;
}

ParameterTable floats(std::int64_t count) {
  ParameterTable table;
  add(table, {count});
  return table;
}

Ids ids_up_to(int servers) {
  Ids ids(static_cast<std::size_t>(servers));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

std::int64_t bytes_of(const BlockMap& map, const std::vector<int>& blocks) {
  std::int64_t bytes = 0;
  for (const int block : blocks) {
    bytes += map.blocks()[static_cast<std::size_t>(block)].bytes();
  }
  return bytes;
}

double share_moved(const BlockMap& map, const std::vector<Move>& moves) {
  std::vector<int> blocks;
  for (const Move& move : moves) {
    blocks.push_back(move.block);
  }
  std::vector<int> all(map.blocks().size());
  std::iota(all.begin(), all.end(), 0);
  return static_cast<double>(bytes_of(map, blocks)) / static_cast<double>(bytes_of(map, all));
}

std::int64_t most_bytes(const Placement& placement) {
  std::int64_t most = 0;
  for (int server = 0; server < std::ssize(placement.servers()); ++server) {
    most = std::max(most, placement.bytes_of(server));
  }
  return most;
}

double largest_to_mean(const BlockMap& map, const Placement& placement) {
  std::vector<int> all(map.blocks().size());
  std::iota(all.begin(), all.end(), 0);
  return static_cast<double>(most_bytes(placement)) * static_cast<double>(placement.servers().size()) /
         static_cast<double>(bytes_of(map, all));
}

/// What no server may exceed.
std::int64_t limit(const BlockMap& map, const Placement& placement) {
  std::int64_t all = 0;
  std::int64_t largest = 0;
  for (const Block& block : map.blocks()) {
    all += block.bytes();
    largest = std::max(largest, block.bytes());
  }
  const std::int64_t mean = all / std::ssize(placement.servers());
  return std::max(mean * 11 / 10, mean + 2 * largest);
}

/// The owner's id for each block.
Ids owners(const BlockMap& map, const Placement& placement) {
  Ids ids;
  for (int block = 0; block < std::ssize(map.blocks()); ++block) {
    ids.push_back(placement.servers().at(static_cast<std::size_t>(placement.owner(block))));
  }
  return ids;
}

void expect_one_owner_each(const BlockMap& map, const Placement& placement) {
  std::vector<int> owned;
  for (int server = 0; server < std::ssize(placement.servers()); ++server) {
    const std::vector<int> blocks = placement.blocks_of(server);
    EXPECT_TRUE(std::is_sorted(blocks.begin(), blocks.end()));
    EXPECT_EQ(bytes_of(map, blocks), placement.bytes_of(server));
    for (const int block : blocks) {
      EXPECT_EQ(placement.owner(block), server);
      owned.push_back(block);
    }
  }
  std::sort(owned.begin(), owned.end());
  std::vector<int> all(map.blocks().size());
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(owned, all);
}

/// Makes a change and expects that the moves it returns, from the owners before, lead to the owners after.
std::vector<Move> expect_true_moves(const BlockMap& map, Placement& placement,
                                    const std::function<std::vector<Move>()>& change) {
  Ids told = owners(map, placement);
  std::vector<Move> moves = change();
  for (const Move& move : moves) {
    std::uint64_t& owner = told.at(static_cast<std::size_t>(move.block));
    EXPECT_EQ(owner, move.from);
    EXPECT_NE(owner, move.to);
    owner = move.to;
  }
  EXPECT_EQ(told, owners(map, placement));
  expect_one_owner_each(map, placement);
  EXPECT_LE(most_bytes(placement), limit(map, placement));
  return moves;
}

TEST(Placement, GivesEachBlockOfRealModelsOneOwnerAndBalancesTheirBytes) {
  ASSERT_EQ(resnet50().parameter_count(), 25'557'032);
  for (const ParameterTable& table : {resnet50(), one_large_layer()}) {
    for (int servers = 1; servers <= 16; ++servers) {
      const BlockMap map(table, servers);
      const Placement placement(map, ids_up_to(servers));
      expect_one_owner_each(map, placement);
      EXPECT_LE(largest_to_mean(map, placement), 1.1) << servers;
      EXPECT_LE(most_bytes(placement), limit(map, placement)) << servers;
    }
  }
}

TEST(Placement, AJoinerTakesAtMostItsShareAndNothingElseMoves) {
  for (const ParameterTable& table : {resnet50(), one_large_layer()}) {
    for (int servers = 1; servers < 16; ++servers) {
      const BlockMap map(table, servers);
      Placement placement(map, ids_up_to(servers));
      const auto moves = expect_true_moves(map, placement, [&] { return placement.add_server(1000); });
      EXPECT_LE(share_moved(map, moves), 1.3 / (servers + 1)) << servers;
      EXPECT_GE(share_moved(map, moves), 0.9 / (servers + 1)) << "the joiner has too little work, of " << servers;
      EXPECT_TRUE(std::all_of(moves.begin(), moves.end(), [](const Move& move) { return move.to == 1000; }));
      EXPECT_LE(largest_to_mean(map, placement), 1.1) << servers;
      EXPECT_EQ(placement.servers().back(), 1000U);
    }
  }
}

TEST(Placement, OnlyWhatALeaverHadMoves) {
  for (const ParameterTable& table : {resnet50(), one_large_layer()}) {
    for (int servers = 2; servers <= 16; ++servers) {
      const BlockMap map(table, servers);
      const Placement before(map, ids_up_to(servers));
      for (const std::uint64_t leaver : before.servers()) {
        Placement placement = before;
        const auto moves = expect_true_moves(map, placement, [&] { return placement.remove_server(leaver); });
        EXPECT_EQ(moves.size(), before.blocks_of(static_cast<int>(leaver)).size());
        EXPECT_TRUE(std::all_of(moves.begin(), moves.end(), [&](const Move& move) { return move.from == leaver; }));
        EXPECT_LE(largest_to_mean(map, placement), 1.1) << leaver << " of " << servers;
      }
    }
  }
}

TEST(Placement, StaysBalancedWhileServersComeAndGo) {
  const BlockMap map(resnet50(), 8);
  Placement placement(map, ids_up_to(8));
  for (std::uint64_t round = 0; round < 50; ++round) {
    expect_true_moves(map, placement, [&] { return placement.add_server(100 + round); });
    EXPECT_LE(largest_to_mean(map, placement), 1.1) << round;
    const std::uint64_t leaver = placement.servers()[round * 5 % placement.servers().size()];
    expect_true_moves(map, placement, [&] { return placement.remove_server(leaver); });
    EXPECT_LE(largest_to_mean(map, placement), 1.1) << round;
  }
  EXPECT_EQ(placement.servers().size(), 8U);
}

TEST(Placement, FollowsFromTheIdsInWhateverOrderTheyAreGiven) {
  const BlockMap map(resnet50(), 6);
  const Ids ids = {7, 0, 0xffffffffffffffff, 123456789, 1, 42};
  Ids other = ids;
  Placement placement(map, ids);
  for (int rotation = 0; rotation < 6; ++rotation) {
    std::rotate(other.begin(), other.begin() + 1, other.end());
    const Placement same(map, other);
    EXPECT_EQ(same.servers(), other);
    EXPECT_EQ(owners(map, same), owners(map, placement));
  }
  Ids reversed(ids.rbegin(), ids.rend());
  Placement same(map, reversed);
  EXPECT_EQ(placement.add_server(5), same.add_server(5));
  EXPECT_EQ(placement.remove_server(0), same.remove_server(0));
  EXPECT_EQ(owners(map, placement), owners(map, same));
}

/// Processes of one job may be built by different compilers for different machines, and a table outlives a run.
TEST(Placement, IsTheSameOnEveryMachine) {
  const BlockMap map(floats(12 * 1024), 3);
  EXPECT_EQ(owners(map, Placement(map, {10, 20, 30})), (Ids{30, 10, 10, 10, 20, 20, 20, 20, 10, 30, 30, 30}));
}

/// The ring, not the counting, decides: a job begun with one server more differs by about one server's share.
TEST(Placement, ChangesLittleWithOneServerMore) {
  const BlockMap map(resnet50(), 8);
  const Ids eight = owners(map, Placement(map, ids_up_to(8)));
  const Ids nine = owners(map, Placement(map, ids_up_to(9)));
  std::ptrdiff_t moved = 0;
  for (std::size_t block = 0; block < eight.size(); ++block) {
    moved += eight[block] == nine[block] ? 0 : 1;
  }
  EXPECT_LE(moved, std::ssize(eight) * 3 / 9);
}

TEST(Placement, LetsServersOwnNothingWhenBlocksAreFew) {
  const BlockMap map(floats(3 * 1024), 8);
  ASSERT_EQ(map.blocks().size(), 3U);
  Placement placement(map, ids_up_to(8));
  expect_one_owner_each(map, placement);
  EXPECT_EQ(most_bytes(placement), 4096) << "two blocks on one server while others have none";
  EXPECT_TRUE(expect_true_moves(map, placement, [&] { return placement.add_server(8); }).empty());
  for (std::uint64_t leaver = 0; leaver < 8; ++leaver) {
    expect_true_moves(map, placement, [&] { return placement.remove_server(leaver); });
  }
  EXPECT_EQ(placement.servers(), Ids{8});
  EXPECT_EQ(placement.bytes_of(0), 3 * 4096);
}

TEST(Placement, SpreadsFewBlocksAsEvenlyAsTheyCanBe) {
  for (int blocks = 1; blocks <= 20; ++blocks) {
    for (int servers = 1; servers <= 8; ++servers) {
      const BlockMap map(floats(blocks * 1024), servers);
      const Placement placement(map, ids_up_to(servers));
      EXPECT_EQ(most_bytes(placement), 4096 * ((blocks + servers - 1) / servers)) << blocks << " " << servers;
    }
  }
}

TEST(Placement, AJoinerTakesABlockLargerThanTheMeanRatherThanNone) {
  ParameterTable table = floats(1024);
  add(table, {512}, ParameterKind::averaged);
  const BlockMap map(table, 1);
  for (std::uint64_t joiner = 2; joiner < 12; ++joiner) {
    Placement placement(map, {1});
    EXPECT_EQ(expect_true_moves(map, placement, [&] { return placement.add_server(joiner); }).size(), 1U) << joiner;
  }
}

TEST(Placement, WorksWithoutParameters) {
  const BlockMap map(ParameterTable{}, 2);
  Placement placement(map, {1, 2});
  EXPECT_TRUE(placement.blocks_of(0).empty());
  EXPECT_TRUE(placement.add_server(3).empty());
  EXPECT_TRUE(placement.remove_server(1).empty());
}

}  // namespace
}  // namespace distbelief
