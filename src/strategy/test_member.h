#pragma once

#include <algorithm>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/random.h"
#include "comm/run_ranks.h"
#include "graph/layers/batch_norm.h"
#include "graph/layers/dense.h"
#include "graph/layers/relu.h"
#include "graph/losses/softmax_cross_entropy.h"
#include "params/rules/rules.h"
#include "params/state_keeper.h"
#include "plan/parameter_layout.h"
#include "strategy/all_reduce.h"
#include "strategy/gossip.h"
#include "strategy/hogwild.h"
#include "strategy/local.h"
#include "strategy/periodic_averaging.h"
#include "strategy/root_update.h"

namespace distbelief {

// For tests: a worker with a small network and samples that are functions of their number.

constexpr std::int64_t kWidth = 12;
constexpr std::int64_t kClasses = 3;
constexpr std::int64_t kBatch = 16;    // of all members, or of each where a strategy is not synchronous
constexpr std::int64_t kSamples = 70;  // no batch divides it

inline Graph test_network(bool batch_norm) {
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

/// The share `part` of each batch, as the loader cuts it (with `shares` in these proportions), and an audit that counts
/// each sample.
class TestSamples : public BatchStream {
 public:
  TestSamples(std::int64_t batch, int part, int parts, const std::vector<std::int64_t>& shares = {})
      : size_(batch), part_(part), parts_(parts) {
    for (const std::int64_t share : shares) {
      before_.push_back(before_.back() + share);
    }
  }
  const Batch* next() override {
    if (!take(batch_, 1)) {
      first_ = 0;
      ++epoch_;
      return nullptr;
    }
    return &batch_;
  }
  bool take(Batch& batch, std::int64_t most) override {
    std::unique_lock lock(mutex_);
    if (first_ >= kSamples) {
      return false;
    }
    const std::int64_t rows = std::min(most * size_, kSamples - first_);
    const auto before = [&](int part) {
      return before_.size() == 1 ? rows * part / parts_
                                 : rows * before_[static_cast<std::size_t>(part)] / before_.back();
    };
    const std::int64_t begin = first_ + before(part_), end = first_ + before(part_ + 1);
    first_ += rows;
    lock.unlock();
    batch.epoch = epoch_;
    batch.ids.clear();
    batch.dense.clear();
    batch.classes.clear();
    const CounterRandom random(3, RandomUse::generate);
    for (std::int64_t i = begin; i < end; ++i) {
      const auto id = static_cast<std::uint64_t>(i);
      batch.ids.push_back(id);
      batch.classes.push_back(static_cast<std::int32_t>(i % kClasses));
      for (std::int64_t c = 0; c < kWidth; ++c) {
        const bool poisoned = i == poisoned_sample && c == 0;
        batch.dense.push_back(poisoned ? std::numeric_limits<float>::quiet_NaN()
                                       : random.normal(id, static_cast<std::uint64_t>(c)) +
                                             static_cast<float>(i % kClasses == c ? 1 : 0));
      }
    }
    leased_by_others(batch.ids);
    return true;
  }
  void leased_by_others(std::span<const std::uint64_t> ids) override { count(ids, leased); }
  void applied(std::span<const std::uint64_t> ids) override { count(ids, applied_times); }
  void dropped(std::span<const std::uint64_t> ids) override {
    const std::scoped_lock lock(mutex_);
    dropped_samples += ids.size();
  }

  /// Every sample was leased and applied so many times.
  bool exactly(int times) const {
    const auto all = [&](const std::vector<int>& counts) { return std::ranges::count(counts, times) == kSamples; };
    return all(leased) && all(applied_times);
  }

  std::int64_t poisoned_sample = -1;
  std::vector<int> leased = std::vector<int>(kSamples), applied_times = std::vector<int>(kSamples);  // by sample
  std::size_t dropped_samples = 0;

 private:
  void count(std::span<const std::uint64_t> ids, std::vector<int>& counts) {
    const std::scoped_lock lock(mutex_);
    for (const std::uint64_t id : ids) {
      ++counts.at(id);
    }
  }

  const std::int64_t size_;
  const int part_, parts_;
  std::vector<std::int64_t> before_ = {0};
  std::mutex mutex_;
  std::int64_t first_ = 0;  // guarded by mutex_
  std::uint64_t epoch_ = 0;
  Batch batch_;
};

struct TestOptions {
  std::string algorithm = "local";
  bool batch_norm = false;
  int threads = 1;
  std::int64_t micro_batches = 1;
  std::string rule = "momentum";
  std::int64_t average_every = 0;         // averaging
  bool only_for_show = false;             // averaging
  bool locked = false;                    // hogwild
  int quorum = 0;                         // gossip
  int staleness = 2;                      // gossip
  std::vector<std::int64_t> shares = {};  // of a batch; empty: equal ones
  Clock::duration patience = std::chrono::minutes(2);
};

/// One worker. It begins with values of its own, unlike those of the others.
class TestMember {
 public:
  explicit TestMember(const TestOptions& options) : TestMember(nullptr, options) {}
  TestMember(Fabric& fabric, const TestOptions& options) : TestMember(&fabric, options) {}

  StepReport step(bool stop = false) {
    return strategy->step(samples, {.update = {.rate = 0.1F, .weight_decay = 0.001F}, .stop = stop});
  }
  /// So many steps, over epochs, each of which ends with settle(). The losses of steps.
  std::vector<double> train(int steps) {
    EXPECT_EQ(strategy->join().outcome, StepReport::Outcome::stepped);
    std::vector<double> losses;
    while (static_cast<int>(losses.size()) < steps) {
      const StepReport report = step();
      if (report.outcome == StepReport::Outcome::end_of_epoch) {
        EXPECT_EQ(strategy->settle(samples).outcome, StepReport::Outcome::stepped);
        continue;
      }
      EXPECT_EQ(report.outcome, StepReport::Outcome::stepped) << report.culprit;
      losses.push_back(report.sums.loss / static_cast<double>(report.sums.rows));
    }
    return losses;
  }
  /// Steps to the end of an epoch and settles; the sums of all reports.
  LossSums train_epoch() {
    LossSums sums;
    StepReport report;
    while ((report = step()).outcome == StepReport::Outcome::stepped) {
      sums += report.sums;
    }
    EXPECT_EQ(report.outcome, StepReport::Outcome::end_of_epoch) << report.culprit;
    report = strategy->settle(samples);
    EXPECT_EQ(report.outcome, StepReport::Outcome::stepped) << report.culprit;
    return sums += report.sums;
  }
  std::vector<float> values() const { return {replica.values().begin(), replica.values().end()}; }
  int position() const { return group ? group->position() : 0; }
  int size() const { return group ? group->size() : 1; }

  const Graph graph;
  const ParameterTable table;
  Replica replica;
  std::unique_ptr<UpdateRule> rule;
  std::optional<Group> group;
  TestSamples samples;
  std::unique_ptr<Strategy> strategy;

 private:
  TestMember(Fabric* fabric, const TestOptions& options)
      : graph(test_network(options.batch_norm)),
        table(layout_parameters(graph)),
        replica(
            graph, table,
            {.threads = options.threads, .mode = ThreadMode::lanes, .seed = 1, .micro_batches = options.micro_batches}),
        rule(make_rule({.name = options.rule})),
        group(fabric == nullptr ? std::nullopt : std::make_optional<Group>(*fabric, all_ranks(*fabric), 1)),
        samples(options.algorithm == "averaging" || options.algorithm == "gossip" ? kBatch * size() : kBatch,
                position(), size(), options.shares) {
    table.initialize(position() == 0 ? 1 : 99, replica.values());
    const GroupOptions shared = {.most_rows = kBatch, .patience = options.patience};
    if (options.algorithm == "local") {
      strategy = std::make_unique<Local>(replica, *rule);
    } else if (options.algorithm == "hogwild") {
      strategy = std::make_unique<Hogwild>(
          replica, *rule, Hogwild::Options{.threads = options.threads, .batch = kBatch, .locked = options.locked});
    } else if (options.algorithm == "sync") {
      strategy = std::make_unique<RootUpdate>(replica, *rule, *group, shared);
    } else if (options.algorithm == "averaging") {
      strategy = std::make_unique<PeriodicAveraging>(
          replica, *rule, *group,
          PeriodicAveraging::Options{
              .group = shared, .every = options.average_every, .only_for_show = options.only_for_show});
    } else if (options.algorithm == "gossip") {
      strategy = std::make_unique<Gossip>(replica, *rule, *group,
                                          Gossip::Options{.group = shared,
                                                          .quorum = options.quorum,
                                                          .staleness = options.staleness,
                                                          .rate = 1.0F / static_cast<float>(size())});
    } else {
      strategy = std::make_unique<AllReduce>(replica, *rule, *group, shared);
    }
  }
};

}  // namespace distbelief
