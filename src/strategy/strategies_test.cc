// What every strategy promises, on ranks that are threads.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/random.h"
#include "comm/run_ranks.h"
#include "graph/layers/batch_norm.h"
#include "graph/layers/dense.h"
#include "graph/layers/relu.h"
#include "graph/losses/softmax_cross_entropy.h"
#include "params/rules/rules.h"
#include "plan/parameter_layout.h"
#include "strategy/all_reduce.h"
#include "strategy/local.h"

namespace distbelief {
namespace {

constexpr std::int64_t kWidth = 12;
constexpr std::int64_t kClasses = 3;
constexpr std::int64_t kBatch = 16;
constexpr std::int64_t kSamples = 70;  // the last batch of an epoch has 6

Graph network(bool batch_norm) {
  Graph graph("net");
  NodeId x = graph.add_input({kWidth});
  x = graph.add("dense1", std::make_shared<Dense>(DenseOptions{.units = 20}), {x});
  if (batch_norm) {
    x = graph.add("norm", std::make_shared<BatchNorm>(), {x});
  }
  x = graph.add("relu", std::make_shared<Relu>(), {x});
  graph.add("dense2", std::make_shared<Dense>(DenseOptions{.units = kClasses}), {x});
  graph.finish(std::make_shared<SoftmaxCrossEntropy>());
  return graph;
}

/// Sample i is a function of i. The share `part` of each batch, as the loader cuts it.
class Samples : public BatchStream {
 public:
  Samples(int part, int parts) : part_(part), parts_(parts) {}
  const Batch* next() override {
    if (first_ >= kSamples) {
      first_ = 0;
      ++batch_.epoch;
      return nullptr;
    }
    const std::int64_t rows = std::min(kBatch, kSamples - first_);
    const std::int64_t begin = first_ + rows * part_ / parts_, end = first_ + rows * (part_ + 1) / parts_;
    first_ += rows;
    batch_.ids.clear();
    batch_.dense.clear();
    batch_.classes.clear();
    const CounterRandom random(3, RandomUse::generate);
    for (std::int64_t i = begin; i < end; ++i) {
      const auto id = static_cast<std::uint64_t>(i);
      batch_.ids.push_back(id);
      batch_.classes.push_back(static_cast<std::int32_t>(i % kClasses));
      for (std::int64_t c = 0; c < kWidth; ++c) {
        const bool poisoned = i == poisoned_sample && c == 0;
        batch_.dense.push_back(poisoned ? std::numeric_limits<float>::quiet_NaN()
                                        : random.normal(id, static_cast<std::uint64_t>(c)) +
                                              static_cast<float>(i % kClasses == c ? 1 : 0));
      }
    }
    return &batch_;
  }
  void leased_by_others(std::span<const std::uint64_t> ids) override { others += ids.size(); }
  void applied(std::span<const std::uint64_t> ids) override { applied_samples += ids.size(); }
  void dropped(std::span<const std::uint64_t> ids) override { dropped_samples += ids.size(); }

  std::int64_t poisoned_sample = -1;
  std::size_t others = 0, applied_samples = 0, dropped_samples = 0;

 private:
  const int part_, parts_;
  std::int64_t first_ = 0;
  Batch batch_;
};

struct Trained {
  std::vector<double> losses;
  std::vector<float> values;
};

/// So many steps of a strategy that `make` makes of (replica, rule).
template <typename Make>
Trained train(int position, int size, bool batch_norm, int threads, const Make& make, int steps = 20) {
  const Graph graph = network(batch_norm);
  const ParameterTable table = layout_parameters(graph);
  Replica replica(graph, table, {.threads = threads, .mode = ThreadMode::lanes, .seed = 1});
  table.initialize(position == 0 ? 1 : 99, replica.values());  // join() must bring the others to the first's
  const auto rule = make_rule({.name = "momentum"});
  const std::unique_ptr<Strategy> strategy = make(replica, *rule);
  EXPECT_EQ(strategy->join().outcome, StepReport::Outcome::stepped);
  Samples samples(position, size);
  Trained trained;
  while (static_cast<int>(trained.losses.size()) < steps) {
    const StepReport report = strategy->step(samples, {.update = {.rate = 0.1F, .weight_decay = 0.001F}});
    if (report.outcome == StepReport::Outcome::end_of_epoch) {
      continue;
    }
    EXPECT_EQ(report.outcome, StepReport::Outcome::stepped) << report.culprit;
    trained.losses.push_back(report.sums.loss / static_cast<double>(report.sums.rows));
  }
  trained.values.assign(replica.values().begin(), replica.values().end());
  return trained;
}

std::vector<Rank> everybody(const Fabric& fabric) {
  std::vector<Rank> ranks;
  for (int i = 0; i < fabric.size(); ++i) {
    ranks.push_back(Rank{i});
  }
  return ranks;
}

std::vector<Trained> train_all_reduce(int ranks, bool batch_norm = false, int threads = 1) {
  std::vector<Trained> all(static_cast<std::size_t>(ranks));
  run_ranks(ranks, [&](Fabric& fabric) {
    Group group(fabric, everybody(fabric), 1);
    all[static_cast<std::size_t>(group.position())] =
        train(group.position(), ranks, batch_norm, threads, [&](Replica& replica, const UpdateRule& rule) {
          return std::make_unique<AllReduce>(replica, rule, group, AllReduce::Options{.most_rows = kBatch});
        });
  });
  return all;
}

Trained train_local(bool batch_norm = false) {
  return train(0, 1, batch_norm, 1,
               [](Replica& replica, const UpdateRule& rule) { return std::make_unique<Local>(replica, rule); });
}

TEST(AllReduce, GivesTheLossesOfOneProcessAtAnyNumberOfWorkers) {
  const Trained local = train_local();
  for (const int ranks : {1, 2, 3, 4, 7}) {
    const std::vector<Trained> all = train_all_reduce(ranks);
    for (std::size_t step = 0; step < local.losses.size(); ++step) {
      EXPECT_NEAR(all[0].losses[step], local.losses[step], 1e-4 * local.losses[step]) << ranks << " workers";
    }
  }
}

TEST(AllReduce, LeavesAllWorkersWithTheSameBits) {
  for (const bool batch_norm : {false, true}) {
    const std::vector<Trained> all = train_all_reduce(3, batch_norm);
    for (const Trained& one : all) {
      EXPECT_EQ(one.values, all[0].values);
      EXPECT_EQ(one.losses, all[0].losses);
    }
  }
}

TEST(AllReduce, GivesTheSameBitsAgain) {
  EXPECT_EQ(train_all_reduce(4)[2].values, train_all_reduce(4)[2].values);
  EXPECT_EQ(train_all_reduce(2, true, 2)[1].values, train_all_reduce(2, true, 2)[1].values);
}

TEST(AllReduce, EveryWorkerCountsTheSamplesOfAll) {
  run_ranks(3, [&](Fabric& fabric) {
    const Graph graph = network(false);
    const ParameterTable table = layout_parameters(graph);
    Replica replica(graph, table, {});
    table.initialize(1, replica.values());
    const auto rule = make_rule({.name = "sgd"});
    Group group(fabric, everybody(fabric), 1);
    AllReduce strategy(replica, *rule, group, {.most_rows = kBatch});
    Samples samples(group.position(), 3);
    while (strategy.step(samples, {.update = {.rate = 0.1F}}).outcome == StepReport::Outcome::stepped) {
    }
    EXPECT_EQ(samples.applied_samples, static_cast<std::size_t>(kSamples));
    EXPECT_EQ(samples.dropped_samples, 0U);
  });
}

TEST(AllReduce, ANanInOneWorkersSamplesStopsAllAndNamesTheLayer) {
  run_ranks(3, [&](Fabric& fabric) {
    const Graph graph = network(false);
    const ParameterTable table = layout_parameters(graph);
    Replica replica(graph, table, {});
    table.initialize(1, replica.values());
    const auto rule = make_rule({.name = "sgd"});
    Group group(fabric, everybody(fabric), 1);
    AllReduce strategy(replica, *rule, group, {.most_rows = kBatch});
    Samples samples(group.position(), 3);
    samples.poisoned_sample = 20;  // in the second batch, of one worker only
    ASSERT_EQ(strategy.step(samples, {.update = {.rate = 0.1F}}).outcome, StepReport::Outcome::stepped);
    const std::vector<float> before(replica.values().begin(), replica.values().end());
    const StepReport report = strategy.step(samples, {.update = {.rate = 0.1F}});
    EXPECT_EQ(report.outcome, StepReport::Outcome::diverged);
    EXPECT_EQ(report.culprit, "layer 'dense1'");
    EXPECT_TRUE(std::ranges::equal(before, replica.values()));
    EXPECT_EQ(samples.dropped_samples, static_cast<std::size_t>(kBatch));
  });
}

TEST(AllReduce, WhenOneIsAskedToStopAllHearOfItAfterTheSameStep) {
  run_ranks(3, [&](Fabric& fabric) {
    const Graph graph = network(false);
    const ParameterTable table = layout_parameters(graph);
    Replica replica(graph, table, {});
    table.initialize(1, replica.values());
    const auto rule = make_rule({.name = "sgd"});
    Group group(fabric, everybody(fabric), 1);
    AllReduce strategy(replica, *rule, group, {.most_rows = kBatch});
    Samples samples(group.position(), 3);
    EXPECT_FALSE(strategy.step(samples, {.update = {.rate = 0.1F}}).stop);
    EXPECT_TRUE(strategy.step(samples, {.update = {.rate = 0.1F}, .stop = group.position() == 2}).stop);
  });
}

TEST(AllReduce, AWorkerThatDiesLeavesTheParametersOfTheOthersAsTheyWere) {
  run_ranks(3, [&](Fabric& fabric) {
    const Graph graph = network(false);
    const ParameterTable table = layout_parameters(graph);
    Replica replica(graph, table, {});
    table.initialize(1, replica.values());
    const auto rule = make_rule({.name = "sgd"});
    Group group(fabric, everybody(fabric), 1);
    AllReduce strategy(replica, *rule, group, {.most_rows = kBatch});
    Samples samples(group.position(), 3);
    ASSERT_EQ(strategy.step(samples, {.update = {.rate = 0.1F}}).outcome, StepReport::Outcome::stepped);
    if (group.position() == 1) {
      return;
    }
    const std::vector<float> before(replica.values().begin(), replica.values().end());
    const StepReport report = strategy.step(samples, {.update = {.rate = 0.1F}});
    EXPECT_EQ(report.outcome, StepReport::Outcome::group_lost);
    EXPECT_NE(report.culprit.find("left"), std::string::npos) << report.culprit;
    EXPECT_TRUE(std::ranges::equal(before, replica.values()));
  });
}

}  // namespace
}  // namespace distbelief
