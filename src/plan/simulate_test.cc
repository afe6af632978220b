#include "plan/simulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/choose_cut.h"
#include "plan/layer_times.h"
#include "plan/parameter_layout.h"
#include "plan/test_networks.h"

namespace distbelief {
namespace {

/// Every layer takes the same time, and backward twice that of forward, so that there is a formula.
class EqualTimes : public LayerTimes {
 public:
  std::optional<LayerTime> time_of(const Layer& /*layer*/, ValueSpecs /*inputs*/, Backward /*backward*/) override {
    return LayerTime{0.001, 0.002};
  }
};

MachineModel free_links(LayerTimes& times) {
  return {.memory_bandwidth = 1e18, .link_bandwidth = 1e18, .link_latency = 0, .message_seconds = 0, .times = &times};
}

Partition in_stages(const Graph& graph, int stages) {
  Partition partition = uncut(graph);
  partition.stages = stages;
  const auto layers = static_cast<int>(graph.nodes().size()) - 1;
  for (int i = 1; i <= layers; ++i) {
    partition.stage[static_cast<std::size_t>(i)] = (i - 1) * stages / layers;
  }
  return partition;
}

TEST(Simulate, OneProcessIsTheSumOfItsLayers) {
  EqualTimes times;
  const Graph graph = equal_layers(4, 32);
  const SimulatedTimes step =
      simulate(graph, layout_parameters(graph), uncut(graph), {.rows = 8, .machine = free_links(times)});
  EXPECT_NEAR(step.step_seconds, 4 * 0.003, 1e-9);
  EXPECT_NEAR(step.processes[0].compute, 4 * 0.003, 1e-9);
  EXPECT_EQ(step.processes[0].sent_bytes, 0);
}

TEST(Simulate, BubbleOfEqualStagesIsThatOfTheFormula) {
  EqualTimes times;
  const Graph graph = equal_layers(8, 32);
  const ParameterTable table = layout_parameters(graph);
  for (const PipelineOrder order : {PipelineOrder::gpipe, PipelineOrder::one_forward_one_backward}) {
    for (const int stages : {2, 4, 8}) {
      for (const int micro_batches : {1, 4, 16}) {
        const SimulatedStep step = {
            .rows = 32, .micro_batches = micro_batches, .order = order, .machine = free_links(times)};
        const Prediction prediction = predict(graph, table, in_stages(graph, stages), step);
        EXPECT_NEAR(prediction.bubble, (stages - 1.0) / (micro_batches + stages - 1.0), 1e-6)
            << stages << " stages, " << micro_batches << " micro-batches";
      }
    }
  }
}

TEST(Simulate, TimesOfEachProcessAddUpToTheStep) {
  const Graph graph = small_images();
  const ParameterTable table = layout_parameters(graph);
  for (const auto& [stages, tensor] : std::vector<std::pair<int, int>>{{1, 4}, {2, 2}, {3, 1}, {1, 3}}) {
    const SimulatedStep step = {.rows = 12, .micro_batches = 3, .replicas = 2, .optimizer_slots = 1};
    const Partition partition = choose_partition(graph, table, {.stages = stages, .tensor = tensor, .step = step});
    const SimulatedTimes times = simulate(graph, table, partition, step);
    ASSERT_EQ(times.processes.size(), static_cast<std::size_t>(stages * tensor));
    for (const ProcessTime& time : times.processes) {
      EXPECT_NEAR(time.compute + time.exchange + time.waiting() + time.update, times.step_seconds, 1e-9);
      EXPECT_GT(time.sent_bytes, 0);
    }
  }
}

TEST(Simulate, ValuesForOtherStagesLeaveWhileTheSenderComputes) {
  EqualTimes times;
  MachineModel machine = free_links(times);
  machine.link_latency = 0.0005;
  const Graph graph = equal_layers(2, 32);
  const SimulatedTimes step =
      simulate(graph, layout_parameters(graph), in_stages(graph, 2),
               {.rows = 8, .micro_batches = 8, .order = PipelineOrder::gpipe, .machine = machine});
  EXPECT_EQ(step.processes[0].exchange, 0);
  EXPECT_EQ(step.processes[1].exchange, 0);
  EXPECT_NEAR(step.step_seconds, 9 * 0.003 + 2 * 0.0005, 1e-9);  // the first there and the last back
}

TEST(Simulate, SlowerLinksMakeSharedLayersSlower) {
  const Graph graph = equal_layers(4, 256);
  const ParameterTable table = layout_parameters(graph);
  SimulatedStep step = {.rows = 64};
  Partition partition = uncut(graph);
  partition.tensor = 4;
  for (std::size_t i = 1; i < partition.cuts.size(); ++i) {
    partition.cuts[i] = Cut::outputs;
  }
  const double fast = simulate(graph, table, partition, step).step_seconds;
  step.machine.link_bandwidth /= 100;
  EXPECT_GT(simulate(graph, table, partition, step).step_seconds, 2 * fast);
}

TEST(Simulate, ComputingAgainCostsAForwardPassForEachMicroBatch) {
  EqualTimes times;
  const Graph graph = equal_layers(2, 32);
  const ParameterTable table = layout_parameters(graph);
  SimulatedStep step = {.rows = 8, .micro_batches = 4, .machine = free_links(times)};
  const double kept = simulate(graph, table, in_stages(graph, 2), step).processes[0].compute;
  step.recompute = true;
  EXPECT_NEAR(simulate(graph, table, in_stages(graph, 2), step).processes[0].compute, kept + 4 * 0.001, 1e-9);
}

TEST(Simulate, SharesInProportionToSpeedMakeAllReadyAtTheSameTime) {
  const Graph graph = equal_layers(4, 512);
  const ParameterTable table = layout_parameters(graph);
  Partition partition = uncut(graph);
  partition.tensor = 2;
  std::ranges::fill(partition.cuts.begin() + 1, partition.cuts.end(), Cut::outputs);
  // Enough operations that they, and not memory, are what takes time.
  const SimulatedStep step = {.rows = 4096, .machine = {.flops = 1e9}, .slowness = {1, 3}};
  const SimulatedTimes equal = simulate(graph, table, partition, step);
  partition.shares = {3, 1};
  const SimulatedTimes shared = simulate(graph, table, partition, step);
  EXPECT_NEAR(equal.processes[1].compute, 3 * equal.processes[0].compute, 1e-3 * equal.processes[0].compute);
  EXPECT_NEAR(shared.processes[1].compute, shared.processes[0].compute, 1e-3 * shared.processes[0].compute);
  EXPECT_LT(shared.step_seconds, 0.55 * equal.step_seconds);
}

/// Whole parts take longer than their layers.
class SlowParts : public EqualTimes {
 public:
  std::optional<LayerTime> time_of_part(const NetworkPart& /*part*/, std::int64_t /*rows*/) override {
    return LayerTime{0.008, 0.012};
  }
};

TEST(Simulate, WholePartsTakeTheTimeThatWasMeasuredOfThem) {
  SlowParts times;
  const Graph graph = equal_layers(4, 32);
  const ParameterTable table = layout_parameters(graph);
  SimulatedStep step = {.rows = 8, .machine = free_links(times)};
  const std::vector<NetworkPart> parts = all_parts(graph, table, uncut(graph));
  step.whole_parts = whole_part_factors(parts, 1, step);
  ASSERT_EQ(step.whole_parts.size(), 1U);
  EXPECT_NEAR(step.whole_parts[0].forward, 2, 1e-9);
  EXPECT_NEAR(step.whole_parts[0].backward, 1.5, 1e-9);
  EXPECT_NEAR(simulate(parts, 1, step).step_seconds, 0.020, 1e-9);
  EqualTimes unknown;
  step.machine = free_links(unknown);
  EXPECT_TRUE(whole_part_factors(parts, 1, step).empty());
}

TEST(Simulate, SumsOverCopiesHideBehindBackward) {
  EqualTimes times;
  MachineModel machine = free_links(times);
  const Graph graph = equal_layers(4, 32);
  const ParameterTable table = layout_parameters(graph);
  const double bytes = static_cast<double>(table.optimized_size()) * sizeof(float);
  SimulatedStep step = {.rows = 8, .replicas = 2, .machine = machine};
  const auto update_with = [&](double sums) {
    step.machine.link_bandwidth = bytes / sums;
    return simulate(graph, table, in_stages(graph, 1), step).processes[0].update;
  };
  EXPECT_NEAR(update_with(0.004), 0.004 / 8, 1e-6);  // backward takes 8 ms
  EXPECT_NEAR(update_with(0.020), 0.020 - 4 * 0.002, 1e-6);
}

}  // namespace
}  // namespace distbelief
