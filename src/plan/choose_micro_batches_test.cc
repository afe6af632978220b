#include "plan/choose_micro_batches.h"

#include <gtest/gtest.h>

#include "graph/layers/batch_norm.h"
#include "plan/layer_times.h"
#include "plan/parameter_layout.h"
#include "plan/test_networks.h"

namespace distbelief {
namespace {

/// A layer's time is so much for each call and each row.
class TimeOfRows : public LayerTimes {
 public:
  TimeOfRows(double call, double row) : call_(call), row_(row) {}
  std::optional<LayerTime> time_of(const Layer& /*layer*/, ValueSpecs inputs, Backward /*backward*/) override {
    const double seconds = call_ + row_ * static_cast<double>(inputs[0].shape[0]);
    return LayerTime{seconds, 2 * seconds};
  }

 private:
  const double call_;
  const double row_;
};

Partition two_stages(const Graph& graph) {
  Partition partition = uncut(graph);
  partition.stages = 2;
  for (std::size_t i = partition.stage.size() / 2 + 1; i < partition.stage.size(); ++i) {
    partition.stage[i] = 1;
  }
  return partition;
}

std::int64_t chosen(const Graph& graph, LayerTimes& times, std::int64_t memory_limit = 0) {
  MachineModel machine = {
      .memory_bandwidth = 1e18, .link_bandwidth = 1e18, .link_latency = 0, .message_seconds = 0, .times = &times};
  const SimulatedStep step = {.rows = 64, .micro_batches = 8, .machine = machine};
  return choose_micro_batches(graph, layout_parameters(graph), two_stages(graph), step, memory_limit);
}

TEST(ChooseMicroBatches, AsManyAsThereAreRowsWhereACallCostsNothing) {
  TimeOfRows times(0, 1e-4);
  EXPECT_EQ(chosen(equal_layers(4, 32), times), 64);
}

TEST(ChooseMicroBatches, FewerWhereEachCallIsDear) {
  TimeOfRows times(1e-2, 1e-4);
  EXPECT_EQ(chosen(equal_layers(4, 32), times), 1);
}

TEST(ChooseMicroBatches, InBetweenWhereBothCount) {
  // A step of p stages is (m + p - 1) turns of c + r R / m each: least at m = sqrt((p - 1) r R / c).
  TimeOfRows times(1e-4, 1e-4);
  EXPECT_EQ(chosen(equal_layers(4, 32), times), 8);
}

TEST(ChooseMicroBatches, MoreThanIsQuickestWhereTheMemoryIsScarce) {
  TimeOfRows times(1e-4, 1e-4);
  const Graph graph = equal_layers(4, 4096);
  const ParameterTable table = layout_parameters(graph);
  SimulatedStep step = {.rows = 64, .micro_batches = 32, .machine = {.times = &times}};
  const std::int64_t limit = predict(graph, table, two_stages(graph), step).most_memory;
  EXPECT_LE(chosen(graph, times), 8);
  EXPECT_EQ(chosen(graph, times, limit), 32);
}

TEST(ChooseMicroBatches, LeavesRowsToBatchNorm) {
  Graph graph("norm");
  NodeId x = graph.add_input({32});
  for (int i = 1; i <= 2; ++i) {
    x = graph.add("dense" + std::to_string(i), std::make_shared<Dense>(DenseOptions{.units = 32}), {x});
    x = graph.add("norm" + std::to_string(i), std::make_shared<BatchNorm>(), {x});
  }
  graph.finish(std::make_shared<SoftmaxCrossEntropy>());
  TimeOfRows times(0, 1e-4);
  EXPECT_EQ(chosen(graph, times), 64 / kFewestRowsOfBatchNorm);
}

}  // namespace
}  // namespace distbelief
