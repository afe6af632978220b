// What plan/ predicts without compiling, against what programs are.
#include "plan/part_memory.h"

#include <gtest/gtest.h>

#include "exec/layer_timer.h"
#include "exec/part_arena.h"
#include "exec/part_timer.h"
#include "graph/layers/dense.h"
#include "graph/layers/wait.h"
#include "plan/choose_cut.h"
#include "plan/parameter_layout.h"
#include "plan/test_networks.h"

namespace distbelief {
namespace {

TEST(PartMemory, EstimateIsNearTheProgramsArena) {
  for (const Graph& graph : {small_images(), equal_layers(6, 256)}) {
    const ParameterTable table = layout_parameters(graph);
    for (const auto& [stages, tensor] : std::vector<std::pair<int, int>>{{1, 1}, {2, 1}, {1, 2}, {2, 2}}) {
      const SimulatedStep step = {.rows = 32, .micro_batches = 2};
      const Partition partition = choose_partition(graph, table, {.stages = stages, .tensor = tensor, .step = step});
      for (int stage = 0; stage < stages; ++stage) {
        const NetworkPart part = part_of(graph, table, partition, stage, 0);
        const auto estimate = static_cast<double>(estimated_arena_bytes(part, 16));
        const auto real = static_cast<double>(compiled_arena_bytes(part, 16));
        EXPECT_GT(estimate, 0.6 * real) << graph.name() << " " << stages << " x " << tensor << ", stage " << stage;
        EXPECT_LT(estimate, 2.0 * real) << graph.name() << " " << stages << " x " << tensor << ", stage " << stage;
      }
    }
  }
}

TEST(PartMemory, CountsTheWholeHugePagesOfLargeBuffers) {
  constexpr std::int64_t kHugePage = std::int64_t{2} << 20;
  const Graph graph = equal_layers(6, 512);
  const ParameterTable table = layout_parameters(graph);
  const std::int64_t bytes = table.size() * static_cast<std::int64_t>(sizeof(float));
  ASSERT_GT(bytes, 2 * kHugePage);
  ASSERT_NE(bytes % kHugePage, 0);
  const SimulatedStep step = {.rows = 32, .micro_batches = 2, .optimizer_slots = 2};
  const PartMemory memory = part_memory(part_of(graph, table, uncut(graph), 0, 0), 0, 1, step);
  const std::int64_t whole = (bytes / kHugePage + 1) * kHugePage;
  EXPECT_EQ(memory.parameters, whole);
  EXPECT_EQ(memory.gradients, 2 * whole);
  EXPECT_EQ(memory.optimizer, 2 * whole);
}

TEST(LayerTimer, TimesForwardAndBackward) {
  const std::vector<ValueSpec> inputs = {{Shape{32, 64}, ValueKind::dense}};
  const Dense dense({.units = 64});
  for (const int processes : {1, 2}) {
    const std::optional<LayerTime> time =
        time_layer(dense, inputs, {.parameters = true, .inputs = true}, {.processes = processes});
    ASSERT_TRUE(time.has_value());
    EXPECT_GT(time->forward, 0);
    EXPECT_GT(time->backward, 0);
  }
}

TEST(LayerTimer, TimesLayersThatWait) {
  const std::vector<ValueSpec> inputs = {{Shape{10, 4}, ValueKind::dense}};
  const std::optional<LayerTime> time = time_layer(Wait(100), inputs, {.inputs = true}, {});
  ASSERT_TRUE(time.has_value());
  EXPECT_GE(time->forward, 0.001);
  EXPECT_GE(time->backward, 0.002);
}

TEST(PartTimer, TimesEveryPartOfACutNetwork) {
  const Graph graph = small_images();
  const ParameterTable table = layout_parameters(graph);
  for (const auto& [stages, tensor] : std::vector<std::pair<int, int>>{{1, 1}, {2, 1}, {1, 2}, {2, 2}}) {
    const Partition partition =
        choose_partition(graph, table, {.stages = stages, .tensor = tensor, .step = {.rows = 8}});
    for (const NetworkPart& part : all_parts(graph, table, partition)) {
      const std::optional<LayerTime> time = time_part(part, 8, {.processes = 2});
      ASSERT_TRUE(time.has_value());
      EXPECT_GT(time->forward, 0);
      EXPECT_GT(time->backward, 0);
    }
  }
}

TEST(PartTimer, LeavesOutWhatIsTooLarge) {
  const Graph graph = equal_layers(2, 1 << 14);
  const ParameterTable table = layout_parameters(graph);
  EXPECT_FALSE(time_part(part_of(graph, table, uncut(graph), 0, 0), 8, {}).has_value());
}

TEST(LayerTimer, LeavesOutWhatIsTooLargeOrHangsOnTheData) {
  const Dense dense({.units = 1 << 16});
  EXPECT_FALSE(
      time_layer(dense, std::vector<ValueSpec>{{Shape{1, 1 << 16}, ValueKind::dense}}, {.parameters = true}, {}));
  EXPECT_FALSE(time_layer(dense, std::vector<ValueSpec>{{Shape{1, 8}, ValueKind::sparse}}, {.parameters = true}, {}));
}

}  // namespace
}  // namespace distbelief
