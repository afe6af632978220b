#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "server/served_job.h"
#include "strategy/downpour.h"
#include "strategy/test_member.h"

namespace distbelief {
namespace {

constexpr float kTouchedRate = 0.1F;
constexpr std::int64_t kFeatures = 4000;
constexpr std::int64_t kNonzeros = 9;
constexpr int kTouchedSteps = 12;  // the epoch ends in between

Graph sparse_network() {
  Graph graph("net");
  NodeId x = graph.add_input({kFeatures}, ValueKind::sparse);
  x = graph.add("dense1", std::make_shared<Dense>(DenseOptions{.units = 8}), {x});
  x = graph.add("norm", std::make_shared<BatchNorm>(), {x});
  x = graph.add("relu", std::make_shared<Relu>(), {x});
  graph.add("dense2", std::make_shared<Dense>(DenseOptions{.units = kClasses}), {x});
  graph.finish(std::make_shared<SoftmaxCrossEntropy>());
  return graph;
}

/// Sparse samples; each batch is a unit, each epoch a lease. Some features come in every batch, most seldom.
class SparseUnits : public BatchStream {
 public:
  explicit SparseUnits(std::uint64_t first_lease = 1, int batches_of_unit = 1)
      : batches_(batches_of_unit), lease_(first_lease) {}
  const Batch* next() override {
    if (first_ == kSamples) {
      first_ = 0;
      ++lease_;
      return nullptr;
    }
    const std::int64_t rows = std::min(kBatch, kSamples - first_);
    batch_ = {};
    for (std::int64_t i = first_; i < first_ + rows; ++i) {
      batch_.ids.push_back(static_cast<std::uint64_t>(i));
      batch_.classes.push_back(static_cast<std::int32_t>(i % kClasses));
      for (std::int64_t k = 0; k < kNonzeros; ++k) {
        batch_.sparse.columns.push_back(static_cast<std::int32_t>(k == 0 ? i % 3 : (37 * i + 431 * k) % kFeatures));
        batch_.sparse.values.push_back(0.1F * static_cast<float>(1 + (i * k) % 7));
      }
      batch_.sparse.offsets.push_back(static_cast<std::int64_t>(batch_.sparse.columns.size()));
    }
    const std::int64_t unit = batches_ * kBatch;
    const std::int64_t seq = first_ / unit;
    first_ += rows;
    const std::int64_t end = std::min((seq + 1) * unit, kSamples);
    unit_ = {.id = {lease_, static_cast<std::uint64_t>(seq)},
             .samples = {.epoch = 0, .first = seq * unit, .count = end - seq * unit},
             .ends = first_ == end};
    return &batch_;
  }
  PushUnit unit() const override { return unit_; }
  void reported(const PushUnit& /*unit*/) override { ++reported_units; }
  void leased_by_others(std::span<const std::uint64_t> /*ids*/) override {}
  void applied(std::span<const std::uint64_t> /*ids*/) override {}
  void dropped(std::span<const std::uint64_t> /*ids*/) override {}

  int reported_units = 0;

 private:
  const int batches_;
  std::uint64_t lease_;
  std::int64_t first_ = 0;
  PushUnit unit_;
  Batch batch_;
};

class DownpourTouched : public testing::TestWithParam<const char*> {
 protected:
  const Graph graph_ = sparse_network();
  const ParameterTable table_ = layout_parameters(graph_);
  const std::unique_ptr<UpdateRule> rule_ = make_rule({.name = GetParam()});
  static constexpr ReplicaOptions kTouched = {.gradient_rows = GradientRows::touched};

  std::vector<float> start() const {
    std::vector<float> values(static_cast<std::size_t>(table_.size()));
    table_.initialize(5, values);
    return values;
  }
  static std::vector<double> losses(Strategy& strategy, BatchStream& samples, int steps, float clip_norm = 0) {
    std::vector<double> found;
    while (static_cast<int>(found.size()) < steps) {
      const StepReport report = strategy.step(samples, {.update = {.rate = kTouchedRate, .clip_norm = clip_norm}});
      if (report.outcome == StepReport::Outcome::stepped) {
        found.push_back(report.sums.loss);
      } else {
        EXPECT_EQ(report.outcome, StepReport::Outcome::end_of_epoch) << report.culprit;
      }
    }
    return found;
  }
  struct Alone {
    std::vector<double> losses;
    std::vector<float> values;
  };
  Alone alone(float clip_norm = 0) const {
    Replica replica(graph_, table_, {});
    std::ranges::copy(start(), replica.values().begin());
    Local local(replica, *rule_);
    SparseUnits samples;
    Alone done = {losses(local, samples, kTouchedSteps, clip_norm), {}};
    done.values.assign(replica.values().begin(), replica.values().end());
    return done;
  }
  std::vector<float> fetched(ServerClient& client) const {
    std::vector<float> values(static_cast<std::size_t>(table_.size()));
    client.begin_fetch();
    EXPECT_TRUE(client.wait_fetched(Clock::now() + std::chrono::minutes(1)).ok());
    client.take(values);
    return values;
  }
};

INSTANTIATE_TEST_SUITE_P(Rules, DownpourTouched, testing::Values("sgd", "adagrad", "momentum"));

TEST_P(DownpourTouched, OneWorkerIsOneProcessBitForBitHoweverItFetches) {
  const Alone expected = alone();
  for (const int fetch_every : {1, 3}) {
    ServedJob job(table_, *rule_, start(), 2, 2, {.rate = kTouchedRate});
    Replica replica(graph_, table_, kTouched);
    Downpour downpour(replica, *rule_, job.client(0), {.fetch_every = fetch_every});
    SparseUnits samples;
    EXPECT_EQ(losses(downpour, samples, kTouchedSteps), expected.losses);
    EXPECT_EQ(downpour.settle(samples).outcome, StepReport::Outcome::stepped);
    EXPECT_EQ(samples.reported_units, kTouchedSteps);
    EXPECT_EQ(fetched(job.client(1)), expected.values);
  }
}

TEST_P(DownpourTouched, AWorkerMayChangeHowItFetches) {
  ServedJob job(table_, *rule_, start(), 2, 1, {.rate = kTouchedRate});
  Replica replica(graph_, table_, kTouched);
  Downpour downpour(replica, *rule_, job.client(0), {});
  SparseUnits samples;
  std::vector<double> found;
  for (int step = 0; step < kTouchedSteps; ++step) {
    // Its own steps are those of the servers only while nothing of its rule is older.
    downpour.exchange().set_exchange(1 + (rule_->slots() == 0 ? step / 2 % 3 : 0), false);
    const std::vector<double> next = losses(downpour, samples, 1);
    found.insert(found.end(), next.begin(), next.end());
  }
  EXPECT_EQ(found, alone().losses);
}

TEST_P(DownpourTouched, UnitsOfSeveralBatchesAreThoseOfWholePushes) {
  for (const bool prefetch : {false, true}) {
    std::array<std::vector<double>, 2> found;
    for (std::size_t i = 0; i < 2; ++i) {
      ServedJob job(table_, *rule_, start(), 2, 1, {.rate = kTouchedRate});
      Replica replica(graph_, table_, i == 0 ? ReplicaOptions{} : kTouched);
      Downpour downpour(replica, *rule_, job.client(0), {.fetch_every = 2, .prefetch = prefetch});
      SparseUnits samples(1, 3);
      found[i] = losses(downpour, samples, prefetch ? 3 : kTouchedSteps);  // then it depends on who is faster
    }
    EXPECT_EQ(found[0], found[1]);
  }
}

TEST_P(DownpourTouched, AGradientIsClippedAsAWhole) {
  ServedJob job(table_, *rule_, start(), 2, 1, {.rate = kTouchedRate});
  Replica replica(graph_, table_, kTouched);
  Downpour downpour(replica, *rule_, job.client(0), {});
  SparseUnits samples;
  const std::vector<double> found = losses(downpour, samples, kTouchedSteps, 0.05F), expected = alone(0.05F).losses;
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_NEAR(found[i], expected[i], 1e-5 * expected[i]) << "step " << i;
  }
}

TEST_P(DownpourTouched, WorkersInWholeStepsAreOneProcessWithTheBatchOfAll) {
  constexpr int kWorkers = 3;
  constexpr int kOfOneEpoch = 4;
  ServedJob job(table_, *rule_, start(), 2, kWorkers, {.rate = kTouchedRate, .gather = kWorkers}, 0);
  std::array<std::vector<double>, kWorkers> found;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < kWorkers; ++i) {
      threads.emplace_back([&, at = static_cast<std::size_t>(i)] {
        Replica replica(graph_, table_, kTouched);
        Downpour downpour(replica, *rule_, job.client(static_cast<int>(at)), {.whole_steps = true});
        SparseUnits samples(100 * (at + 1));
        found[at] = losses(downpour, samples, kOfOneEpoch);
        EXPECT_EQ(downpour.settle(samples).outcome, StepReport::Outcome::stepped);
      });
    }
  }
  const std::vector<double> expected = alone().losses;
  for (std::size_t i = 0; i < kOfOneEpoch; ++i) {
    EXPECT_EQ(found[0][i], found[1][i]);  // all have the same samples here
    EXPECT_EQ(found[0][i], found[2][i]);
    EXPECT_NEAR(found[0][i], expected[i], 1e-5 * expected[i]) << "step " << i;
  }
}

}  // namespace
}  // namespace distbelief
