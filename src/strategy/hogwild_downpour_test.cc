#include "strategy/hogwild_downpour.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>
#include <utility>

#include "server/served_job.h"
#include "strategy/downpour.h"
#include "strategy/test_units.h"

namespace distbelief {
namespace {

constexpr std::int64_t kColumns = 200;

/// The same samples as sparse rows: a class is known by one of its columns.
class HogwildUnits : public UnitsOfTest {
 public:
  using UnitsOfTest::UnitsOfTest;
  const Batch* next() override {
    const Batch* batch = UnitsOfTest::next();
    if (batch == nullptr) {
      return nullptr;
    }
    lent_ = *batch;
    make_sparse(lent_);
    return &lent_;
  }
  bool take(Batch& batches, std::int64_t most) override {
    const bool more = UnitsOfTest::take(batches, most);
    if (more) {
      make_sparse(batches);
    }
    return more;
  }

 private:
  static void make_sparse(Batch& batch) {
    batch.dense.clear();
    batch.sparse = {};
    for (std::size_t i = 0; i < batch.ids.size(); ++i) {
      const auto other = static_cast<std::int32_t>(kClasses + batch.ids[i] * 7 % (kColumns - kClasses));
      batch.sparse.columns.insert(batch.sparse.columns.end(), {batch.classes[i], other});
      batch.sparse.values.insert(batch.sparse.values.end(), {1, 0.5F});
      batch.sparse.offsets.push_back(static_cast<std::int64_t>(batch.sparse.columns.size()));
    }
  }
  Batch lent_;
};

Graph logistic() {
  Graph graph("logistic");
  const NodeId x = graph.add_input({kColumns}, ValueKind::sparse);
  graph.add("output", std::make_shared<Dense>(DenseOptions{.units = kClasses}), {x});
  graph.finish(std::make_shared<SoftmaxCrossEntropy>());
  return graph;
}

/// A job with servers whose workers begin with the same values.
struct Job {
  Job(const Graph& model, const char* rule_name, const UpdateOptions& update, int workers = 1,
      std::optional<std::uint64_t> max_staleness = {})
      : graph(model),
        table(layout_parameters(graph)),
        rule(make_rule({.name = rule_name})),
        options(update),
        served(table, *rule, start(), 2, workers, update, max_staleness) {}

  std::vector<float> start() const {
    std::vector<float> values(static_cast<std::size_t>(table.size()));
    table.initialize(5, values);
    return values;
  }
  StepRequest request() const { return {.update = options}; }

  const Graph graph;
  const ParameterTable table;
  const std::unique_ptr<UpdateRule> rule;
  const UpdateOptions options;
  ServedJob served;
};

struct HogwildWorker {
  HogwildWorker(Job& job, int threads, const UnitExchange::Options& exchange = {}, int number = 0,
                std::int64_t batch = kBatch)
      : replica(job.graph, job.table, {}),
        strategy(replica, *job.rule, job.served.client(number), exchange, {.threads = threads, .batch = batch}) {}
  Replica replica;
  HogwildDownpour strategy;
};

/// Steps to the end of so many epochs; the loss of each unit, or of the batches of each unit.
std::vector<double> losses(Strategy& strategy, BatchStream& samples, const StepRequest& request, int epochs) {
  EXPECT_EQ(strategy.join().outcome, StepReport::Outcome::stepped);
  std::vector<double> found;
  double unit = 0;
  while (epochs > 0) {
    const StepReport report = strategy.step(samples, request);
    if (report.outcome == StepReport::Outcome::end_of_epoch) {
      --epochs;
      continue;
    }
    EXPECT_EQ(report.outcome, StepReport::Outcome::stepped) << report.culprit;
    if (report.outcome != StepReport::Outcome::stepped) {
      break;
    }
    unit += report.sums.loss;
    if (samples.unit().ends) {
      found.push_back(std::exchange(unit, 0));
    }
  }
  return found;
}

TEST(HogwildDownpour, OneThreadHasTheLossesOfDownpourWithStepsOfItsOwn) {
  struct Case {
    int batches_of_unit;
    int fetch_every;
  };
  for (const bool sparse : {false, true}) {
    for (const bool batch_norm : {false, true}) {
      for (const char* rule : {"sgd", "adagrad"}) {
        for (const Case& one : {Case{2, 2}, Case{3, 3}, Case{2, 4}}) {
          const Graph graph = sparse ? logistic() : test_network(batch_norm);
          const auto samples = [&]() -> std::unique_ptr<UnitsOfTest> {
            return sparse ? std::make_unique<HogwildUnits>(kBatch, one.batches_of_unit)
                          : std::make_unique<UnitsOfTest>(kBatch, one.batches_of_unit);
          };
          Job job(graph, rule, {.rate = 0.1F});
          HogwildWorker worker(job, 1, {.fetch_every = one.fetch_every});
          const std::vector<double> found = losses(worker.strategy, *samples(), job.request(), 3);
          Job other(graph, rule, {.rate = 0.1F});
          Replica replica(other.graph, other.table, {});
          Downpour downpour(replica, *other.rule, other.served.client(0), {.fetch_every = one.fetch_every});
          EXPECT_EQ(found, losses(downpour, *samples(), other.request(), 3))
              << rule << ", units of " << one.batches_of_unit << (sparse ? ", sparse" : "")
              << (batch_norm ? ", batch norm" : "");
        }
      }
    }
  }
}

TEST(HogwildDownpour, AGradientIsClippedAsDownpourClipsIt) {
  const UpdateOptions update = {.rate = 0.1F, .clip_norm = 0.2F, .drop_nonfinite = true};
  Job job(test_network(false), "sgd", {.rate = 0.1F}), other(test_network(false), "sgd", {.rate = 0.1F});
  HogwildWorker worker(job, 1, {.fetch_every = 2});
  UnitsOfTest samples(kBatch, 2), others(kBatch, 2);
  const std::vector<double> found = losses(worker.strategy, samples, {.update = update}, 3);
  Replica replica(other.graph, other.table, {});
  Downpour downpour(replica, *other.rule, other.served.client(0), {.fetch_every = 2});
  const std::vector<double> expected = losses(downpour, others, {.update = update}, 3);
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_NEAR(found[i], expected[i], 1e-5 * expected[i]) << "unit " << i;
  }
}

TEST(HogwildDownpour, ThreadsComputeEachBatchOnceAndEveryUnitIsReportedOnce) {
  struct Case {
    int threads;
    int batches_of_unit;
    bool prefetch;
  };
  for (const bool sparse : {false, true}) {
    for (const Case& one : {Case{2, 3, false}, Case{2, 3, true}, Case{2, 1, false}, Case{3, 5, false}}) {
      Job job(sparse ? logistic() : test_network(true), "sgd", {.rate = 0.1F});
      HogwildWorker worker(job, one.threads, {.fetch_every = 3, .prefetch = one.prefetch});
      const auto samples = sparse ? std::make_unique<HogwildUnits>(kBatch, one.batches_of_unit)
                                  : std::make_unique<UnitsOfTest>(kBatch, one.batches_of_unit);
      StepReport report;
      LossSums sums;
      std::int64_t updates = 0;
      while ((report = worker.strategy.step(*samples, job.request())).outcome == StepReport::Outcome::stepped) {
        sums += report.sums;
        updates += report.updates;
      }
      ASSERT_EQ(report.outcome, StepReport::Outcome::end_of_epoch) << report.culprit;
      EXPECT_EQ(sums.rows, kSamples);
      EXPECT_EQ(updates, (kSamples + kBatch - 1) / kBatch);
      EXPECT_TRUE(samples->exactly(1));
      const std::int64_t unit = kBatch * one.batches_of_unit;
      const auto units = static_cast<std::size_t>((kSamples + unit - 1) / unit);
      ASSERT_EQ(samples->reported_units.size(), units);
      for (std::size_t i = 0; i < units; ++i) {
        EXPECT_EQ(samples->reported_units[i].seq, i);
      }
      // A small model leaves a server without blocks, which lacks nothing.
      EXPECT_EQ(std::min(job.served.server(0).next_push(1), job.served.server(1).next_push(1)), units);
    }
  }
}

/// As batches that are read ahead: one at a time, however many are wanted.
class OneAtATime : public HogwildUnits {
 public:
  using HogwildUnits::HogwildUnits;
  bool take(Batch& batches, std::int64_t /*most*/) override { return HogwildUnits::take(batches, 1); }
};

TEST(HogwildDownpour, AStreamThatGivesLessThanIsWantedIsComputedWhole) {
  Job job(logistic(), "sgd", {.rate = 0.1F});
  HogwildWorker worker(job, 2, {}, 0, 1);
  OneAtATime samples(1, static_cast<int>(kSamples));  // lanes soon want several of its small batches at once
  for (int epoch = 1; epoch <= 20; ++epoch) {
    StepReport report;
    std::int64_t rows = 0;
    while ((report = worker.strategy.step(samples, job.request())).outcome == StepReport::Outcome::stepped) {
      rows += report.sums.rows;
    }
    ASSERT_EQ(report.outcome, StepReport::Outcome::end_of_epoch) << report.culprit;
    ASSERT_EQ(rows, kSamples);
  }
}

TEST(HogwildDownpour, WorkersWithThreadsLearnTogether) {
  for (const bool sparse : {false, true}) {
    constexpr int kWorkers = 2;
    Job job(sparse ? logistic() : test_network(false), "adagrad", {.rate = 0.05F}, kWorkers);
    std::array<std::vector<double>, kWorkers> found;
    {
      std::vector<std::jthread> threads;
      for (int i = 0; i < kWorkers; ++i) {
        threads.emplace_back([&, i] {
          const auto at = static_cast<std::size_t>(i);
          const auto samples = sparse ? std::make_unique<HogwildUnits>(kBatch, 4, 1000 * (at + 1))
                                      : std::make_unique<UnitsOfTest>(kBatch, 4, 1000 * (at + 1));
          HogwildWorker worker(job, 2, {}, i);
          found[at] = losses(worker.strategy, *samples, job.request(), 20);
          EXPECT_TRUE(samples->exactly(20));
          EXPECT_EQ(samples->reported_units.size(), 40U);
        });
      }
    }
    for (const std::vector<double>& one : found) {
      ASSERT_EQ(one.size(), 40U);  // two units an epoch
      EXPECT_LT(one[38] + one[39], 0.8 * (one[0] + one[1]));
    }
  }
}

TEST(HogwildDownpour, AUnitWithALossThatIsNotFiniteIsNotPushed) {
  for (const int threads : {1, 2}) {
    Job job(test_network(false), "sgd", {.rate = 0.1F});
    HogwildWorker worker(job, threads);
    UnitsOfTest samples(kBatch, 2);
    samples.poisoned_sample = 3 * kBatch + 1;  // in the second unit
    ASSERT_EQ(worker.strategy.step(samples, job.request()).outcome, StepReport::Outcome::stepped);
    const StepReport report = worker.strategy.step(samples, job.request());
    EXPECT_EQ(report.outcome, StepReport::Outcome::diverged);
    EXPECT_EQ(report.culprit, "layer 'dense1'");
    EXPECT_EQ(job.served.server(0).next_push(1), 1U);
  }
}

TEST(HogwildDownpour, WhatServersRefuseGoesBackAndIsNotCounted) {
  Job job(test_network(true), "sgd", {.rate = 0.1F}, 2, 1);
  HogwildWorker worker(job, 2, {.fetch_every = 4}, 0), other(job, 2, {}, 1);
  UnitsOfTest samples(kBatch, 2), others(kBatch, 2, 7);
  ASSERT_EQ(worker.strategy.step(samples, job.request()).outcome, StepReport::Outcome::stepped);
  ASSERT_EQ(other.strategy.step(others, job.request()).outcome, StepReport::Outcome::stepped);
  ASSERT_EQ(other.strategy.settle(others).outcome, StepReport::Outcome::stepped);
  ASSERT_EQ(worker.strategy.step(samples, job.request()).sums.rows, 2 * kBatch);  // of values that are two updates old
  const StepReport report = worker.strategy.step(samples, job.request());
  EXPECT_EQ(report.outcome, StepReport::Outcome::stepped);
  EXPECT_EQ(report.updates, 0);
  EXPECT_EQ(report.sums.rows, 0);
  ASSERT_EQ(samples.refused_units.size(), 1U);
  EXPECT_EQ(samples.refused_units[0].seq, 1U);
  EXPECT_EQ(samples.reported_units.size(), 1U);
  EXPECT_TRUE(others.refused_units.empty());
}

TEST(HogwildDownpour, AFencedWorkerEnds) {
  Job job(test_network(false), "sgd", {.rate = 0.1F});
  HogwildWorker worker(job, 2);
  UnitsOfTest samples(kBatch, 2);
  job.served.server(0).fence(1);
  StepReport report;
  for (int i = 0; i < 3 && report.outcome == StepReport::Outcome::stepped; ++i) {
    report = worker.strategy.step(samples, job.request());
  }
  EXPECT_EQ(report.outcome, StepReport::Outcome::group_lost);
}

}  // namespace
}  // namespace distbelief
