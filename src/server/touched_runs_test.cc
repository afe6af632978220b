#include "server/touched_runs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/random.h"

namespace distbelief {
namespace {

/// Two parameters with the same rows, one without, a frozen one, and statistics.
ParameterTable mixed_table() {
  ParameterTable table;
  table.add("f.weight", {.name = "weight", .shape = {5000}, .init = {}, .row_floats = 1});
  table.add("f.factors", {.name = "factors", .shape = {5000, 3}, .init = {}, .row_floats = 3});
  table.add("d.weight", {.name = "weight", .shape = {900}, .init = {}});
  table.add("old.weight", {.name = "weight", .shape = {100}, .init = {}});
  table.add("bn.mean", {.name = "mean", .shape = {20}, .init = {}, .kind = ParameterKind::averaged});
  table.freeze("old.*");
  return table;
}

class TouchedRunsTest : public testing::Test {
 protected:
  const ParameterTable table_ = mixed_table();
  const BlockMap map_ = BlockMap(table_, 2);
  /// In turns, so that neighbours in the flat space are not neighbours on a server.
  std::vector<std::vector<int>> blocks() const {
    std::vector<std::vector<int>> of_servers(2);
    for (int i = 0; i < static_cast<int>(map_.blocks().size()); ++i) {
      of_servers[i % 3 == 0 ? 0 : 1].push_back(i);
    }
    return of_servers;
  }
  /// Which places of the flat space these rows mean.
  std::vector<bool> marked(const std::vector<std::int32_t>& rows) const {
    std::vector<bool> marks(static_cast<std::size_t>(table_.size()));
    for (const ParameterEntry& entry : table_.entries()) {
      const std::int64_t width = entry.spec.row_floats;
      for (std::int64_t at = entry.range.begin; at < entry.range.end; ++at) {
        const bool touched = width == 0 || std::ranges::find(rows, (at - entry.range.begin) / width) != rows.end();
        marks[static_cast<std::size_t>(at)] = touched && !entry.frozen;
      }
    }
    return marks;
  }
  std::vector<TouchedRows> touched(const std::vector<std::int32_t>& rows) const {
    return {{&table_.at("f.weight"), rows}, {&table_.at("f.factors"), rows}};
  }
};

TEST_F(TouchedRunsTest, AreTheRowsAndAllThatHasNone) {
  const CounterRandom random(3, RandomUse::generate);
  TouchedRuns runs(table_, map_, blocks());
  for (const std::size_t count : {0U, 1U, 7U, 300U, 2000U}) {
    std::vector<std::int32_t> rows;
    for (std::size_t i = 0; rows.size() < count; ++i) {
      const auto row = static_cast<std::int32_t>(std::abs(random.normal(count, i)) * 1300) % 5000;
      if (std::ranges::find(rows, row) == rows.end()) {
        rows.push_back(row);
      }
    }
    runs.find(touched(rows));
    std::vector<bool> flat(static_cast<std::size_t>(table_.size())), of_servers = flat;
    std::uint64_t end = 0;
    for (const FloatRun& run : runs.flat()) {
      EXPECT_TRUE(end == 0 || run.begin > end);  // neighbours are one run
      end = run.end();
      std::fill(flat.begin() + run.begin, flat.begin() + static_cast<std::ptrdiff_t>(run.end()), true);
    }
    EXPECT_EQ(flat, marked(rows));
    for (const TouchedRuns::OfServer& server : runs.servers()) {
      std::uint64_t last = 0;
      std::size_t floats = 0;
      for (std::size_t k = 0; k < server.runs.size(); ++k) {
        const FloatRun& run = server.runs[k];
        EXPECT_GE(run.begin, last);
        last = run.end();
        floats += run.count;
        const std::int64_t place = server.places[k];
        EXPECT_EQ(map_.block_of(place), map_.block_of(place + run.count - 1));
        EXPECT_EQ(k < server.optimized, place < table_.optimized_size());
        std::fill_n(of_servers.begin() + place, run.count, true);
      }
      EXPECT_EQ(floats, server.floats);
    }
    EXPECT_EQ(of_servers, flat);
  }
}

TEST_F(TouchedRunsTest, AreCountedOverTheBlocksOfTheirServer) {
  const std::vector<std::vector<int>> of_servers = blocks();
  TouchedRuns runs(table_, map_, of_servers);
  std::vector<std::int32_t> rows(5000);
  std::iota(rows.begin(), rows.end(), 0);
  runs.find(touched(rows));
  for (std::size_t server = 0; server < of_servers.size(); ++server) {
    std::vector<std::int64_t> place_of;  // of each float of the server
    for (const int number : of_servers[server]) {
      const Range range = map_.blocks()[static_cast<std::size_t>(number)].range;
      for (std::int64_t at = range.begin; at < range.end; ++at) {
        place_of.push_back(at);
      }
    }
    for (const TouchedRuns::OfServer* one : {&runs.servers()[server], &runs.everything_of(server)}) {
      for (std::size_t k = 0; k < one->runs.size(); ++k) {
        ASSERT_LE(one->runs[k].end(), place_of.size());
        EXPECT_EQ(place_of[one->runs[k].begin], one->places[k]);
      }
    }
    EXPECT_EQ(runs.everything_of(server).floats, place_of.size());
  }
}

TEST_F(TouchedRunsTest, HaveALengthWithoutFrozenAndAveragedNumbers) {
  TouchedRuns runs(table_, map_, blocks());
  runs.find(touched({1, 2, 4000}));
  const std::vector<float> ones(static_cast<std::size_t>(table_.size()), 1.0F);
  EXPECT_DOUBLE_EQ(runs.norm(ones), std::sqrt(3 + 9 + 900));
}

}  // namespace
}  // namespace distbelief
