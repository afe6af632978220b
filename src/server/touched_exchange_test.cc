#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <thread>

#include "base/random.h"
#include "params/update_rule.h"
#include "server/served_job.h"
#include "server/test_tables.h"

namespace distbelief {
namespace {

constexpr std::int32_t kRows = 5000;
constexpr float kRate = 0.1F;

ParameterTable sparse_table() {
  ParameterTable table;
  table.add("a.weight", {.name = "weight", .shape = {kRows, 2}, .init = {}, .row_floats = 2});
  table.add("a.bias", {.name = "bias", .shape = {2}, .init = {}});
  table.add("bn.mean", {.name = "mean", .shape = {50}, .init = {}, .kind = ParameterKind::averaged});
  return table;
}

std::vector<float> normals(std::int64_t count, std::uint64_t stream) {
  const CounterRandom random(9, RandomUse::generate);
  std::vector<float> out(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = random.normal(stream, i);
  }
  return out;
}

/// Rows that a batch touches, with neighbours among them, and its gradient.
struct SparseBatch {
  SparseBatch(const ParameterTable& table, std::uint64_t number, std::int32_t count = 200)
      : garbage(normals(table.size(), number)), whole(garbage.size()) {
    for (std::int32_t i = 0; i < count; ++i) {
      const auto row =
          static_cast<std::int32_t>((number * 131 + static_cast<std::uint64_t>(i / 3) * 97) % kRows) + i % 3;
      if (row < kRows && std::ranges::find(rows, row) == rows.end()) {
        rows.push_back(row);
      }
    }
    const ParameterEntry& weight = table.at("a.weight");
    touched = {{&weight, rows}};
    for (std::size_t i = static_cast<std::size_t>(weight.range.end); i < whole.size(); ++i) {
      whole[i] = garbage[i];
    }
    for (const std::int32_t row : rows) {
      for (auto at = static_cast<std::size_t>(touched[0].offset(row)), end = at + 2; at < end; ++at) {
        whole[at] = garbage[at];
      }
    }
  }
  std::vector<std::int32_t> rows;
  std::vector<TouchedRows> touched;
  std::vector<float> garbage;  ///< right only where it is touched
  std::vector<float> whole;    ///< 0 elsewhere
};

class TouchedExchange : public testing::Test {
 protected:
  const ParameterTable table_ = sparse_table();
  const std::vector<float> start_ = normals(table_.size(), 1);
  std::vector<float> values_ = std::vector<float>(start_.size());

  void fetch(ServerClient& client) {
    client.begin_fetch();
    take(client);
  }
  void take(ServerClient& client) {
    ASSERT_TRUE(client.wait_fetched(soon()).ok());
    client.take(values_);
  }
  ServerClient::PushReport push(ServerClient& client, std::uint64_t lease, std::uint64_t seq) {
    EXPECT_TRUE(client.push({.id = {lease, seq}, .scale = 0.25F}, soon()).outcome.ok());
    ServerClient::PushReport report = client.wait_pushed(soon());
    EXPECT_TRUE(report.outcome.ok());
    return report;
  }
};

TEST_F(TouchedExchange, LeavesTheBitsOfWholePushesWithZerosElsewhere) {
  for (const char* name : {"sgd", "adagrad", "momentum", "adam"}) {
    const std::unique_ptr<UpdateRule> rule = make_rule({.name = name});
    for (const int batches : {1, 2, 5}) {
      SCOPED_TRACE(std::string(name) + ", batches a push: " + std::to_string(batches));
      ServedJob by_runs(table_, *rule, start_, 3, 1, {.rate = kRate});
      ServedJob by_whole(table_, *rule, start_, 3, 1, {.rate = kRate});
      TouchedRuns runs = by_runs.client(0).touched_runs(table_);
      for (std::uint64_t seq = 0; seq < 4; ++seq) {
        for (int i = 0; i < batches; ++i) {
          const SparseBatch batch(table_, 10 * seq + static_cast<std::uint64_t>(i));
          const float factor = seq == 2 ? 0.5F : 1.0F;
          runs.find(batch.touched);
          by_runs.client(0).add_touched(runs, batch.garbage, factor);
          const std::span<const float> part = batch.whole;
          by_whole.client(0).add({&part, 1}, factor);
        }
        EXPECT_EQ(push(by_runs.client(0), 1, seq).status, ReplyHead::Status::done);
        EXPECT_EQ(push(by_whole.client(0), 1, seq).status, ReplyHead::Status::done);
      }
      fetch(by_whole.client(0));
      const std::vector<float> expected = values_;
      fetch(by_runs.client(0));
      EXPECT_EQ(values_, expected);
    }
  }
}

TEST_F(TouchedExchange, FetchesWhatIsTouchedAndNothingElse) {
  const std::unique_ptr<UpdateRule> rule = make_rule({.name = "sgd"});
  ServedJob job(table_, *rule, start_, 3, 1, {.rate = kRate});
  ServerClient& client = job.client(0);
  TouchedRuns runs = client.touched_runs(table_);
  const SparseBatch batch(table_, 5);
  std::ranges::fill(values_, 77.0F);
  runs.find(batch.touched);
  client.begin_fetch_touched(runs);
  take(client);
  std::vector<float> expected(values_.size(), 77.0F);
  for (const FloatRun& run : runs.flat()) {
    std::copy_n(start_.begin() + run.begin, run.count, expected.begin() + run.begin);
  }
  EXPECT_EQ(values_, expected);
  fetch(client);  // what was fetched in part is not taken for whole
  EXPECT_EQ(values_, start_);
}

TEST_F(TouchedExchange, FetchesAllOfAServerWhereABatchTouchesMostOfIt) {
  const std::unique_ptr<UpdateRule> rule = make_rule({.name = "sgd"});
  ServedJob job(table_, *rule, start_, 2, 1, {.rate = 1});
  ServerClient& client = job.client(0);
  TouchedRuns runs = client.touched_runs(table_);
  std::vector<std::int32_t> rows;
  for (std::int32_t row = 0; row < kRows; row += 2) {
    rows.push_back(row);
  }
  runs.find(std::vector<TouchedRows>{{&table_.at("a.weight"), rows}});
  client.begin_fetch_touched(runs);
  take(client);
  EXPECT_EQ(values_, start_);
  const std::vector<float> ones(start_.size(), 1.0F);
  client.add_touched(runs, ones);
  EXPECT_EQ(push(client, 1, 0).status, ReplyHead::Status::done);
  client.begin_fetch_touched(runs, ServerClient::Freshness::all_newer);
  take(client);
  for (std::int32_t row = 0; row < kRows; ++row) {
    const auto at = static_cast<std::size_t>(2 * row);
    ASSERT_EQ(values_[at], start_[at] - (row % 2 == 0 ? 0.25F : 0.0F)) << row;
  }
  const SparseBatch few(table_, 5);  // and after that few again
  runs.find(few.touched);
  client.add_touched(runs, ones);
  EXPECT_EQ(push(client, 1, 1).status, ReplyHead::Status::done);
  fetch(client);
  EXPECT_EQ(values_[2], start_[2] - (std::ranges::find(few.rows, 1) != few.rows.end() ? 0.25F : 0.0F));
}

TEST_F(TouchedExchange, AGradientIsAsStaleAsTheRowsItWasComputedFrom) {
  const std::unique_ptr<UpdateRule> rule = make_rule({.name = "sgd"});
  ServedJob job(table_, *rule, start_, 2, 2, {.rate = kRate}, 2);
  std::array<TouchedRuns, 2> runs = {job.client(0).touched_runs(table_), job.client(1).touched_runs(table_)};
  const SparseBatch batch(table_, 5), other(table_, 6);
  runs[0].find(batch.touched);
  runs[1].find(other.touched);
  for (int i = 0; i < 2; ++i) {
    job.client(i).begin_fetch_touched(runs[static_cast<std::size_t>(i)]);
    take(job.client(i));
  }
  for (std::uint64_t seq = 0; seq < 4; ++seq) {
    if (seq > 0) {
      job.client(0).begin_fetch_touched(runs[0]);
      take(job.client(0));
    }
    job.client(0).add_touched(runs[0], batch.garbage);
    EXPECT_EQ(push(job.client(0), 1, seq).staleness, 0);  // in blocks without a run too
    if (seq == 1) {
      job.client(1).add_touched(runs[1], other.garbage);
      const ServerClient::PushReport report = push(job.client(1), 2, 0);
      EXPECT_EQ(report.status, ReplyHead::Status::done);
      EXPECT_EQ(report.staleness, 2);
      EXPECT_TRUE(report.whole);
    }
  }
  job.client(1).add_touched(runs[1], other.garbage);
  EXPECT_EQ(push(job.client(1), 2, 1).status, ReplyHead::Status::late);
  job.client(1).add_touched(runs[1], other.garbage);
  job.client(1).discard();
  job.client(1).begin_fetch_touched(runs[1]);
  take(job.client(1));
  job.client(1).add_touched(runs[1], std::vector<float>(start_.size()));
  fetch(job.client(0));
  const std::vector<float> before = values_;
  EXPECT_EQ(push(job.client(1), 2, 1).status, ReplyHead::Status::done);
  fetch(job.client(0));
  for (std::int64_t at = 0; at < table_.optimized_size(); ++at) {  // nothing was left of what was discarded
    ASSERT_EQ(values_[static_cast<std::size_t>(at)], before[static_cast<std::size_t>(at)]);
  }
}

TEST_F(TouchedExchange, APushThatComesTwiceEntersOnce) {
  const std::unique_ptr<UpdateRule> rule = make_rule({.name = "adagrad"});
  ServedJob job(table_, *rule, start_, 2, 2, {.rate = kRate});
  const SparseBatch batch(table_, 5);
  std::vector<float> first;
  for (int i = 0; i < 2; ++i) {
    TouchedRuns runs = job.client(i).touched_runs(table_);
    runs.find(batch.touched);
    job.client(i).add_touched(runs, batch.garbage);
    EXPECT_EQ(push(job.client(i), 7, 0).status, i == 0 ? ReplyHead::Status::done : ReplyHead::Status::duplicate);
    fetch(job.client(i));
    if (i == 0) {
      first = values_;
    }
  }
  EXPECT_EQ(values_, first);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(job.server(i).next_push(7), 1U);
  }
}

TEST_F(TouchedExchange, ManyClientsAtOnceLoseNoPush) {
  constexpr int kClients = 4;
  constexpr std::uint64_t kPushes = 40;
  const std::unique_ptr<UpdateRule> rule = make_rule({.name = "sgd"});
  const std::vector<float> zeros(start_.size());
  ServedJob job(table_, *rule, zeros, 2, kClients, {.rate = 1});
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < kClients; ++i) {
      threads.emplace_back([&, i] {
        ServerClient& client = job.client(i);
        const std::vector<float> ones(start_.size(), 1.0F);
        std::vector<float> mine(start_.size());
        TouchedRuns runs = client.touched_runs(table_);
        for (std::uint64_t seq = 0; seq < kPushes; ++seq) {
          const SparseBatch batch(table_, seq % 3);
          runs.find(batch.touched);
          client.begin_fetch_touched(runs);
          EXPECT_TRUE(client.wait_fetched(soon()).ok());
          client.take(mine);
          client.add_touched(runs, ones);
          EXPECT_TRUE(client.push({.id = {static_cast<std::uint64_t>(i) + 1, seq}}, soon()).outcome.ok());
        }
        EXPECT_TRUE(client.wait_pushed(soon()).outcome.ok());
      });
    }
  }
  fetch(job.client(0));
  std::vector<float> expected(start_.size());
  for (std::uint64_t seq = 0; seq < kPushes; ++seq) {
    for (const std::int32_t row : SparseBatch(table_, seq % 3).rows) {
      expected[static_cast<std::size_t>(2 * row)] -= kClients;
    }
  }
  for (std::size_t at = 0; at < 2 * kRows; at += 2) {
    ASSERT_EQ(values_[at], expected[at]) << at;
  }
}

}  // namespace
}  // namespace distbelief
