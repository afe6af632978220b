// Sandblaster without processes: servers, a leader and workers on threads, with links between them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "data/synthetic.h"
#include "graph/layers/activation.h"
#include "graph/layers/dense.h"
#include "graph/losses/softmax_cross_entropy.h"
#include "params/lbfgs/lbfgs.h"
#include "params/lbfgs/textbook_lbfgs.h"
#include "train/portion_job.h"

namespace distbelief {
namespace {

constexpr std::int64_t kPortionBatch = 8;
constexpr int kPortionWorkers = 3;
constexpr double kDecay = 0.01;

/// Softmax regression, or with a layer of sigmoids before it.
Graph network(bool deep) {
  Graph graph("network");
  NodeId x = graph.add_input({12}, ValueKind::dense);
  if (deep) {
    x = graph.add("hidden", std::make_shared<Dense>(DenseOptions{.units = 10}), {x});
    x = graph.add("sigmoid", std::make_shared<Activation>(Activation::Kind::sigmoid), {x});
  }
  graph.add("output", std::make_shared<Dense>(DenseOptions{.units = 3}), {x});
  graph.finish(std::make_shared<SoftmaxCrossEntropy>());
  return graph;
}

class Portions : public testing::TestWithParam<bool> {
 protected:
  /// Objectives of so many iterations; one of the workers falls silent after so many units.
  std::vector<double> train(int iterations, int most_units) {
    for (int i = 0; i < kPortionWorkers; ++i) {
      job_.start_worker({}, i == 0 ? most_units : 1 << 30);
    }
    Lbfgs lbfgs(job_.vectors(), {.weight_decay = kDecay});
    std::vector<double> found;
    while (static_cast<int>(found.size()) <= iterations) {
      const LossSums sums = job_.evaluate();
      EXPECT_EQ(sums.rows, static_cast<std::int64_t>(data_.train->size()));
      const Lbfgs::Report report = lbfgs.evaluated(sums.loss / static_cast<double>(sums.rows));
      if (report.iterated) {
        found.push_back(report.objective);
      }
      EXPECT_EQ(report.status, Lbfgs::Status::going_on);
      EXPECT_TRUE(lbfgs.go_on());
    }
    return found;
  }

  /// The same in one place.
  std::vector<double> textbook(int iterations) {
    Replica replica(graph_, job_.table(), {});
    PortionBatches batches(*data_.train, job_.sampler(), {.batch = kPortionBatch});
    const auto samples = static_cast<std::int64_t>(data_.train->size());
    const auto evaluate = [&](std::vector<double>& x, std::vector<double>& gradient) {
      std::ranges::copy(x, replica.values().begin());
      std::ranges::copy(replica.values(), x.begin());
      std::ranges::fill(gradient, 0.0);
      LossSums sums;
      batches.want({.epoch = 0, .first = 0, .count = samples});
      while (const Batch* batch = batches.next()) {
        sums += replica.compute_gradient(*batch);
        std::ranges::transform(gradient, replica.gradients()[0], gradient.begin(), std::plus<>());
      }
      double objective = sums.loss / static_cast<double>(samples);
      std::ranges::transform(gradient, gradient.begin(),
                             [&](double sum) { return sum / static_cast<double>(samples); });
      for (const ParameterEntry& entry : job_.table().entries()) {
        for (auto i = static_cast<std::size_t>(entry.range.begin); i < static_cast<std::size_t>(entry.range.end); ++i) {
          objective += entry.spec.decays ? kDecay / 2 * x[i] * x[i] : 0;
          gradient[i] += entry.spec.decays ? kDecay * x[i] : 0;
        }
      }
      return objective;
    };
    return textbook_lbfgs({job_.start().begin(), job_.start().end()}, evaluate, iterations, 10);
  }

  static void expect_same(const std::vector<double>& found, const std::vector<double>& wanted) {
    ASSERT_EQ(found.size(), wanted.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_NEAR(found[i], wanted[i], 1e-5 * wanted[i]) << "iteration " << i;
    }
  }

  const SyntheticSplits data_ = make_synthetic(parse_synthetic("classes=3,shape=12,samples=203,seed=3,noise=4"));
  const Graph graph_ = network(GetParam());
  PortionJob job_{
      graph_,
      *data_.train,
      {.workers = kPortionWorkers, .batch = kPortionBatch, .portions = {.portion = kPortionBatch, .most_portions = 3}}};
};

TEST_P(Portions, WorkersAndServersTakeTheStepsOfOneProcess) {
  expect_same(train(10, 1 << 30), textbook(10));
  const SampleAudit audit = job_.books().audit();
  EXPECT_EQ(audit.applied % data_.train->size(), 0U);
  EXPECT_EQ(audit.leased, audit.applied + audit.dropped);
}

TEST_P(Portions, AWorkerThatFallsSilentChangesNothing) {
  expect_same(train(10, 4), textbook(10));  // backups do what it had
}

INSTANTIATE_TEST_SUITE_P(Sandblaster, Portions, testing::Bool(),
                         [](const auto& one) { return one.param ? "network" : "convex"; });

}  // namespace
}  // namespace distbelief
