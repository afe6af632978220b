#include "strategy/local.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "graph/layers/dense.h"
#include "graph/losses/softmax_cross_entropy.h"
#include "params/update_rule.h"
#include "plan/parameter_layout.h"

namespace distbelief {
namespace {

/// Hands its input on. Its parameter takes no part in that, but claims an infinite gradient.
class Cliff : public Layer {
 public:
  std::string_view type() const override { return "cliff"; }
  ValueSpec output(ValueSpecs inputs) const override { return inputs[0]; }
  std::vector<ParameterSpec> parameters(ValueSpecs /*inputs*/) const override {
    return {{.name = "edge", .shape = {3}, .init = Initializer::zeros()}};
  }
  std::unique_ptr<Kernel> compile(const Engine& /*engine*/, ValueLayouts inputs, Purpose /*purpose*/) const override {
    return std::make_unique<CliffKernel>(inputs[0]);
  }

 private:
  class CliffKernel : public Kernel {
   public:
    explicit CliffKernel(const ValueLayout& value) : Kernel(value), floats_(value.spec.shape.elements()) {}
    void forward(const StepContext& /*step*/) override {
      std::copy_n(static_cast<const float*>(memory_.inputs[0]), floats_, memory_.output);
    }
    void backward(const StepContext& /*step*/) override {
      if (memory_.input_gradients[0] != nullptr) {
        std::copy_n(memory_.output_gradient, floats_, memory_.input_gradients[0]);
      }
      std::fill_n(memory_.parameter_gradients[0], 3, 0.0F);
      memory_.parameter_gradients[0][1] = std::numeric_limits<float>::infinity();
    }

   private:
    const std::int64_t floats_;
  };
};

/// One batch, for ever; counts what became of it.
class SameBatch : public BatchStream {
 public:
  SameBatch() {
    batch_.ids = {0, 1};
    batch_.dense = {1, 2, 3, 4};
    batch_.classes = {0, 1};
  }
  const Batch* next() override { return &batch_; }
  void leased_by_others(std::span<const std::uint64_t> /*ids*/) override {}
  void applied(std::span<const std::uint64_t> /*ids*/) override { ++applied_; }
  void dropped(std::span<const std::uint64_t> /*ids*/) override { ++dropped_; }
  int applied() const { return applied_; }
  int dropped() const { return dropped_; }

 private:
  Batch batch_;
  int applied_ = 0;
  int dropped_ = 0;
};

/// A replica of a network with the cliff in it, and a strategy for it.
struct Training {
  Training() {
    NodeId x = graph.add_input({2});
    x = graph.add("first", std::make_shared<Dense>(DenseOptions{.units = 2}), {x});
    x = graph.add("cliff", std::make_shared<Cliff>(), {x});
    graph.add("last", std::make_shared<Dense>(DenseOptions{.units = 2}), {x});
    graph.finish(std::make_shared<SoftmaxCrossEntropy>());
    table = layout_parameters(graph);
    replica.emplace(graph, table, ReplicaOptions{});
    table.initialize(1, replica->values());
    strategy.emplace(*replica, *rule);
  }

  Graph graph{"steep"};
  ParameterTable table;
  std::optional<Replica> replica;
  std::unique_ptr<UpdateRule> rule = make_rule({});
  std::optional<Local> strategy;
  SameBatch batches;
};

TEST(Local, SaysWhichParameterAnInfiniteGradientBroke) {
  Training training;
  const StepReport report = training.strategy->step(training.batches, {.update = {.rate = 0.1F}});
  EXPECT_EQ(report.outcome, StepReport::Outcome::diverged);
  EXPECT_TRUE(std::isfinite(report.sums.loss));
  EXPECT_EQ(report.culprit, "parameter 'cliff.edge'");
  EXPECT_EQ(training.batches.applied(), 1);
}

TEST(Local, TouchesNothingWhenTheGradientIsMeasuredFirst) {
  Training training;
  const std::vector<float> before(training.replica->values().begin(), training.replica->values().end());
  const StepReport report =
      training.strategy->step(training.batches, {.update = {.rate = 0.1F, .drop_nonfinite = true}});
  EXPECT_EQ(report.outcome, StepReport::Outcome::diverged);
  EXPECT_EQ(report.culprit, "the gradient of 'cliff.edge'");
  EXPECT_EQ(std::vector<float>(training.replica->values().begin(), training.replica->values().end()), before);
  EXPECT_EQ(training.batches.dropped(), 1);
}

TEST(Local, StepsOnWhileAllIsFinite) {
  Training training;
  training.table.freeze("cliff.*");
  training.strategy.emplace(*training.replica, *training.rule);
  for (int step = 0; step < 3; ++step) {
    EXPECT_EQ(training.strategy->step(training.batches, {.update = {.rate = 0.1F}}).outcome,
              StepReport::Outcome::stepped);
  }
  EXPECT_EQ(training.batches.applied(), 3);
}

}  // namespace
}  // namespace distbelief
