#include "strategy/downpour.h"

#include <gtest/gtest.h>

#include "server/served_job.h"
#include "strategy/test_units.h"

namespace distbelief {
namespace {

constexpr float kRate = 0.1F;

class DownpourTest : public testing::Test {
 protected:
  const Graph graph_ = test_network(true);
  const ParameterTable table_ = layout_parameters(graph_);
  const std::unique_ptr<UpdateRule> rule_ = make_rule({.name = "momentum"});
  std::vector<float> start() const {
    std::vector<float> values(static_cast<std::size_t>(table_.size()));
    table_.initialize(5, values);
    return values;
  }
  static StepRequest request() { return {.update = {.rate = kRate}}; }

  /// Losses of steps on one worker's own.
  std::vector<double> alone(int steps) {
    Replica replica(graph_, table_, {});
    std::ranges::copy(start(), replica.values().begin());
    Local local(replica, *rule_);
    TestSamples samples(kBatch, 0, 1);
    return losses(local, samples, steps);
  }
  static std::vector<double> losses(Strategy& strategy, BatchStream& samples, int steps) {
    std::vector<double> found;
    while (static_cast<int>(found.size()) < steps) {
      const StepReport report = strategy.step(samples, request());
      if (report.outcome == StepReport::Outcome::stepped) {
        found.push_back(report.sums.loss);
      } else {
        EXPECT_EQ(report.outcome, StepReport::Outcome::end_of_epoch) << report.culprit;
      }
    }
    return found;
  }
};

TEST_F(DownpourTest, OneWorkerThatPushesAndFetchesEachTimeIsPlainSgdBitForBit) {
  ServedJob job(table_, *rule_, start(), 2, 1, {.rate = kRate});
  Replica replica(graph_, table_, {});
  Downpour downpour(replica, *rule_, job.client(0), {});
  ASSERT_EQ(downpour.join().outcome, StepReport::Outcome::stepped);
  UnitsOfTest samples(kBatch, 1);
  EXPECT_EQ(losses(downpour, samples, 12), alone(12));
}

TEST_F(DownpourTest, BetweenFetchesAWorkerStepsOnItsOwnCopy) {
  ServedJob job(table_, *rule_, start(), 2, 1, {.rate = kRate});
  Replica replica(graph_, table_, {});
  Downpour downpour(replica, *rule_, job.client(0), {.fetch_every = 100});
  ASSERT_EQ(downpour.join().outcome, StepReport::Outcome::stepped);
  UnitsOfTest samples(kBatch, 1);
  EXPECT_EQ(losses(downpour, samples, 12), alone(12));  // its own rule and the servers' do the same
}

TEST_F(DownpourTest, AFetchInsideAUnitThatBringsNothingNewChangesNothing) {
  ServedJob job(table_, *rule_, start(), 2, 1, {.rate = kRate});
  Replica replica(graph_, table_, {});
  Downpour downpour(replica, *rule_, job.client(0), {.fetch_every = 2});
  ASSERT_EQ(downpour.join().outcome, StepReport::Outcome::stepped);
  UnitsOfTest samples(kBatch, 6);
  const std::vector<double> found = losses(downpour, samples, 5);  // an epoch
  const std::vector<double> wanted = alone(5);
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_NEAR(found[i], wanted[i], 1e-5 * wanted[i]) << "step " << i;  // own steps are taken off and added again
  }
}

TEST_F(DownpourTest, EveryUnitIsReportedOnceItIsInEveryBlock) {
  for (const bool prefetch : {false, true}) {
    for (const int batches : {1, 2, 3}) {
      ServedJob job(table_, *rule_, start(), 2, 1, {.rate = kRate});
      Replica replica(graph_, table_, {});
      Downpour downpour(replica, *rule_, job.client(0), {.fetch_every = 2, .prefetch = prefetch});
      ASSERT_EQ(downpour.join().outcome, StepReport::Outcome::stepped);
      UnitsOfTest samples(kBatch, batches);
      StepReport report;
      while ((report = downpour.step(samples, request())).outcome == StepReport::Outcome::stepped) {
      }
      ASSERT_EQ(report.outcome, StepReport::Outcome::end_of_epoch) << report.culprit;
      const std::int64_t unit = kBatch * batches;
      const auto units = static_cast<std::size_t>((kSamples + unit - 1) / unit);
      ASSERT_EQ(samples.reported_units.size(), units);
      for (std::size_t i = 0; i < units; ++i) {
        EXPECT_EQ(samples.reported_units[i].seq, i);
      }
      EXPECT_EQ(job.server(0).next_push(1), units);
      EXPECT_EQ(job.server(1).next_push(1), units);
    }
  }
}

TEST_F(DownpourTest, ALossThatIsNotFiniteIsNotPushed) {
  ServedJob job(table_, *rule_, start(), 1, 1, {.rate = kRate});
  Replica replica(graph_, table_, {});
  Downpour downpour(replica, *rule_, job.client(0), {});
  ASSERT_EQ(downpour.join().outcome, StepReport::Outcome::stepped);
  UnitsOfTest samples(kBatch, 1);
  samples.poisoned_sample = kBatch + 1;
  ASSERT_EQ(downpour.step(samples, request()).outcome, StepReport::Outcome::stepped);
  const StepReport report = downpour.step(samples, request());
  EXPECT_EQ(report.outcome, StepReport::Outcome::diverged);
  EXPECT_FALSE(report.culprit.empty());
  EXPECT_EQ(job.server(0).next_push(1), 1U);
}

TEST_F(DownpourTest, StopsWhenTheServersSayThatTrainingIsOver) {
  ServedJob job(table_, *rule_, start(), 2, 1, {.rate = kRate});
  Replica replica(graph_, table_, {});
  Downpour downpour(replica, *rule_, job.client(0), {});
  ASSERT_EQ(downpour.join().outcome, StepReport::Outcome::stepped);
  UnitsOfTest samples(kBatch, 1);
  ASSERT_FALSE(downpour.step(samples, request()).stop);
  job.server(1).end();
  StepReport report;
  for (int i = 0; i < 3 && !report.stop; ++i) {
    report = downpour.step(samples, request());
    ASSERT_EQ(report.outcome, StepReport::Outcome::stepped);
  }
  EXPECT_TRUE(report.stop);
}

TEST_F(DownpourTest, WorkersInWholeStepsAreOneProcessWithTheBatchOfAll) {
  constexpr int kWorkers = 3;
  constexpr int kSteps = 4;  // of one epoch: nobody is idle
  ServedJob job(table_, *rule_, start(), 2, kWorkers, {.rate = kRate, .gather = kWorkers}, 0);
  std::array<std::vector<double>, kWorkers> found;
  std::array<std::vector<float>, kWorkers> values;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < kWorkers; ++i) {
      threads.emplace_back([&, at = static_cast<std::size_t>(i)] {
        Replica replica(graph_, table_, {});
        Downpour downpour(replica, *rule_, job.client(static_cast<int>(at)), {.whole_steps = true});
        UnitsOfTest samples(kBatch, 1, 100 * (at + 1));
        found[at] = losses(downpour, samples, kSteps);
        values[at].assign(replica.values().begin(), replica.values().end());
        EXPECT_EQ(downpour.settle(samples).outcome, StepReport::Outcome::stepped);
        EXPECT_TRUE(samples.refused_units.empty());
      });
    }
  }
  EXPECT_EQ(found[0], found[1]);  // all have the same samples here
  EXPECT_EQ(values[0], values[1]);
  EXPECT_EQ(values[0], values[2]);
  const std::vector<double> expected = alone(kSteps);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(found[0][i], expected[i], 1e-5 * expected[i]) << "step " << i;
  }
}

TEST_F(DownpourTest, WhatServersRefuseGoesBackAndIsNotCounted) {
  ServedJob job(table_, *rule_, start(), 2, 2, {.rate = kRate}, 1);
  Replica replica(graph_, table_, {});
  Downpour downpour(replica, *rule_, job.client(0), {.fetch_every = 2});
  UnitsOfTest samples(kBatch, 1);
  Replica other_replica(graph_, table_, {});
  Downpour other(other_replica, *rule_, job.client(1), {});
  UnitsOfTest others(kBatch, 1, 7);
  ASSERT_EQ(downpour.step(samples, request()).outcome, StepReport::Outcome::stepped);
  ASSERT_EQ(other.step(others, request()).outcome, StepReport::Outcome::stepped);
  ASSERT_EQ(other.settle(others).outcome, StepReport::Outcome::stepped);
  ASSERT_EQ(downpour.step(samples, request()).sums.rows, kBatch);  // of values that are two updates old
  const StepReport report = downpour.step(samples, request());
  EXPECT_EQ(report.outcome, StepReport::Outcome::stepped);
  EXPECT_EQ(report.updates, 0);
  EXPECT_EQ(report.sums.rows, 0);
  ASSERT_EQ(samples.refused_units.size(), 1U);
  EXPECT_EQ(samples.refused_units[0].seq, 1U);
  EXPECT_EQ(samples.reported_units.size(), 1U);
  EXPECT_TRUE(others.refused_units.empty());
}

TEST_F(DownpourTest, AFencedWorkerEnds) {
  ServedJob job(table_, *rule_, start(), 2, 1, {.rate = kRate});
  Replica replica(graph_, table_, {});
  Downpour downpour(replica, *rule_, job.client(0), {});
  ASSERT_EQ(downpour.join().outcome, StepReport::Outcome::stepped);
  UnitsOfTest samples(kBatch, 1);
  job.server(0).fence(1);
  StepReport report;
  for (int i = 0; i < 3 && report.outcome == StepReport::Outcome::stepped; ++i) {
    report = downpour.step(samples, request());
  }
  EXPECT_EQ(report.outcome, StepReport::Outcome::group_lost);
}

}  // namespace
}  // namespace distbelief
