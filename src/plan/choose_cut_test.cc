#include "plan/choose_cut.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "plan/layer_times.h"
#include "plan/parameter_layout.h"
#include "plan/test_networks.h"

namespace distbelief {
namespace {

/// One layer, known by its units, is as slow as all others together.
class OneSlowLayer : public LayerTimes {
 public:
  std::optional<LayerTime> time_of(const Layer& /*layer*/, ValueSpecs inputs, Backward /*backward*/) override {
    const double seconds = inputs[0].shape[1] == 48 ? 0.010 : 0.001;
    return LayerTime{seconds, 2 * seconds};
  }
};

Graph uneven() {
  Graph graph("uneven");
  NodeId x = graph.add_input({48});
  for (int i = 1; i <= 6; ++i) {
    x = graph.add("dense" + std::to_string(i), std::make_shared<Dense>(DenseOptions{.units = 32}), {x});
  }
  graph.finish(std::make_shared<SoftmaxCrossEntropy>());
  return graph;
}

TEST(ChoosePartition, BalancesStagesByMeasuredCost) {
  OneSlowLayer times;
  const Graph graph = uneven();
  const CutRequest request = {.stages = 2, .step = {.rows = 8, .micro_batches = 4, .machine = {.times = &times}}};
  const Partition partition = choose_partition(graph, layout_parameters(graph), request);
  EXPECT_THAT(partition.stage, testing::ElementsAre(0, 0, 1, 1, 1, 1, 1));  // the slow one is alone
}

TEST(ChoosePartition, MovesLayersToKeepToTheMemory) {
  // The first layers are quick and large, so that balance by time alone would put too much into the first stage.
  Graph graph("large first");
  NodeId x = graph.add_input({512});
  x = graph.add("large1", std::make_shared<Dense>(DenseOptions{.units = 512}), {x});
  x = graph.add("large2", std::make_shared<Dense>(DenseOptions{.units = 512}), {x});
  x = graph.add("small1", std::make_shared<Dense>(DenseOptions{.units = 16}), {x});
  x = graph.add("small2", std::make_shared<Dense>(DenseOptions{.units = 16}), {x});
  graph.finish(std::make_shared<SoftmaxCrossEntropy>());
  const ParameterTable table = layout_parameters(graph);
  class SlowSmall : public LayerTimes {
    std::optional<LayerTime> time_of(const Layer& /*layer*/, ValueSpecs inputs, Backward /*backward*/) override {
      return inputs[0].shape[1] == 16 ? LayerTime{0.01, 0.01} : LayerTime{0.001, 0.001};
    }
  } times;
  CutRequest request = {.stages = 2, .step = {.rows = 4, .micro_batches = 2, .machine = {.times = &times}}};
  EXPECT_EQ(choose_partition(graph, table, request).stage[2], 0);
  request.memory_limit = 3 * 512 * 513 * 4 + 300000;  // values, gradients and their sum of one large layer
  EXPECT_THAT(choose_partition(graph, table, request).stage, testing::ElementsAre(0, 0, 1, 1, 1));
}

TEST(ChoosePartition, GivesTheSameAnswerTwice) {
  const Graph graph = small_images();
  const ParameterTable table = layout_parameters(graph);
  const CutRequest request = {.stages = 2, .tensor = 2, .step = {.rows = 8, .micro_batches = 4}};
  const Partition first = choose_partition(graph, table, request);
  const Partition second = choose_partition(graph, table, request);
  EXPECT_EQ(first.stage, second.stage);
  EXPECT_EQ(first.cuts, second.cuts);
}

TEST(ChoosePartition, RefusesMoreStagesThanLayers) {
  const Graph graph = equal_layers(3, 16);
  EXPECT_THROW((void)choose_partition(graph, layout_parameters(graph), {.stages = 4}), InputError);
}

TEST(PartMemory, CountsWhatAProcessHolds) {
  const Graph graph = equal_layers(4, 64);
  const ParameterTable table = layout_parameters(graph);
  Partition partition = uncut(graph);
  partition.stages = 2;
  partition.stage = {0, 0, 0, 1, 1};
  const auto of = [&](int stage, const SimulatedStep& step) {
    return part_memory(part_of(graph, table, partition, stage, 0), stage, 2, step,
                       [](const NetworkPart& /*part*/, std::int64_t rows) { return 1024 * rows; });
  };
  const std::int64_t parameters = 2 * (64 * 64 + 64) * 4;
  const SimulatedStep step = {.rows = 32, .micro_batches = 8, .optimizer_slots = 2};
  EXPECT_GT(of(0, step).program, 0);
  EXPECT_EQ(of(0, step).parameters, parameters);
  EXPECT_EQ(of(0, step).gradients, 2 * parameters);  // and the sum of those of micro-batches before
  EXPECT_EQ(of(0, step).optimizer, 2 * parameters);
  EXPECT_EQ(of(0, step).activations, 2 * 4096);
  EXPECT_EQ(of(1, step).activations, 1 * 4096);
  SimulatedStep gpipe = step;
  gpipe.order = PipelineOrder::gpipe;
  EXPECT_EQ(of(1, gpipe).activations, 8 * 4096);
  gpipe.recompute = true;
  EXPECT_EQ(of(1, gpipe).activations, 4096 + 8 * 4 * 64 * 4);  // and what came from the stage before
}

}  // namespace
}  // namespace distbelief
