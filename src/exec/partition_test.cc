// Networks that are cut over processes: their losses, gradients and beginnings are those of the whole.
#include "plan/partition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "base/error.h"
#include "base/random.h"
#include "comm/run_ranks.h"
#include "exec/replica.h"
#include "graph/layers/activation.h"
#include "graph/layers/add.h"
#include "graph/layers/batch_norm.h"
#include "graph/layers/conv2d.h"
#include "graph/layers/dense.h"
#include "graph/layers/dropout.h"
#include "graph/layers/embedding.h"
#include "graph/layers/l2_pool.h"
#include "graph/layers/local_response_norm.h"
#include "graph/layers/locally_connected2d.h"
#include "graph/layers/pooling.h"
#include "graph/layers/relu.h"
#include "graph/layers/reshape.h"
#include "graph/losses/softmax_cross_entropy.h"
#include "plan/parameter_layout.h"

namespace distbelief {
namespace {

constexpr std::int64_t kRows = 12;
constexpr std::int64_t kClassCount = 5;

LayerPtr dense(std::int64_t units) { return std::make_shared<Dense>(DenseOptions{.units = units}); }
LayerPtr conv(std::int64_t filters, std::int64_t kernel, std::int64_t stride, std::int64_t padding) {
  return std::make_shared<Conv2d>(
      Conv2dOptions{.filters = filters,
                    .window = {.kernel = {kernel, kernel}, .stride = {stride, stride}, .padding = {padding, padding}}});
}
LayerPtr max_pool(std::int64_t kernel, std::int64_t stride, std::int64_t padding = 0) {
  return std::make_shared<Pooling>(PoolingOptions{
      .window = {.kernel = {kernel, kernel}, .stride = {stride, stride}, .padding = {padding, padding}}});
}

Graph mlp() {
  Graph graph("mlp");
  NodeId x = graph.add_input({20});
  x = graph.add("dense1", dense(40), {x});
  x = graph.add("relu1", std::make_shared<Relu>(), {x});
  x = graph.add("dropout", std::make_shared<Dropout>(DropoutOptions{.rate = 0.3F, .salt = 7}), {x});
  x = graph.add("dense2", dense(36), {x});
  x = graph.add("sigmoid", std::make_shared<Activation>(Activation::Kind::sigmoid), {x});
  x = graph.add("dense3", dense(kClassCount), {x});
  graph.finish(std::make_shared<SoftmaxCrossEntropy>());
  return graph;
}

Graph convolutions() {
  Graph graph("lenet");
  NodeId x = graph.add_input({2, 12, 10});
  x = graph.add("conv1", conv(8, 5, 1, 2), {x});
  x = graph.add("relu1", std::make_shared<Relu>(), {x});
  x = graph.add("pool1", max_pool(3, 2, 1), {x});
  x = graph.add("conv2", conv(12, 3, 1, 1), {x});
  x = graph.add("relu2", std::make_shared<Relu>(), {x});
  x = graph.add("pool2", max_pool(2, 2), {x});
  x = graph.add("flatten", Reshape::flatten(), {x});
  x = graph.add("dense1", dense(24), {x});
  x = graph.add("relu3", std::make_shared<Relu>(), {x});
  x = graph.add("dense2", dense(kClassCount), {x});
  graph.finish(std::make_shared<SoftmaxCrossEntropy>());
  return graph;
}

Graph residual() {
  Graph graph("resnet");
  NodeId x = graph.add_input({3, 8, 8});
  x = graph.add("stem", conv(8, 3, 1, 1), {x});
  x = graph.add("bn0", std::make_shared<BatchNorm>(), {x});
  const NodeId source = graph.add("relu0", std::make_shared<Relu>(), {x});
  x = graph.add("conv1", conv(8, 3, 1, 1), {source});
  x = graph.add("bn1", std::make_shared<BatchNorm>(), {x});
  x = graph.add("relu1", std::make_shared<Relu>(), {x});
  x = graph.add("conv2", conv(8, 3, 1, 1), {x});
  x = graph.add("bn2", std::make_shared<BatchNorm>(), {x});
  x = graph.add("add", std::make_shared<Add>(), {x, source});
  x = graph.add("relu2", std::make_shared<Relu>(), {x});
  x = graph.add("pool",
                std::make_shared<Pooling>(
                    PoolingOptions{.kind = PoolingOptions::Kind::average, .window = {}, .global = true}),
                {x});
  x = graph.add("flatten", Reshape::flatten(), {x});
  x = graph.add("fc", dense(kClassCount), {x});
  graph.finish(std::make_shared<SoftmaxCrossEntropy>());
  return graph;
}

/// As residual(), but every row of an image has its own weights at the end and no bias stands before batch norm: their
/// gradients would be nothing but rounding, which hangs on the order of sums.
Graph normalized_images() {
  const LayerPtr unbiased = std::make_shared<Conv2d>(
      Conv2dOptions{.filters = 8, .window = {.kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}}, .bias = false});
  Graph graph("images");
  NodeId x = graph.add_input({3, 8, 8});
  x = graph.add("stem", unbiased, {x});
  x = graph.add("bn0", std::make_shared<BatchNorm>(), {x});
  const NodeId source = graph.add("relu0", std::make_shared<Relu>(), {x});
  x = graph.add("conv1", unbiased, {source});
  x = graph.add("bn1", std::make_shared<BatchNorm>(), {x});
  x = graph.add("relu1", std::make_shared<Relu>(), {x});
  x = graph.add("conv2", unbiased, {x});
  x = graph.add("bn2", std::make_shared<BatchNorm>(), {x});
  x = graph.add("add", std::make_shared<Add>(), {x, source});
  x = graph.add("relu2", std::make_shared<Relu>(), {x});
  x = graph.add("flatten", Reshape::flatten(), {x});
  x = graph.add("fc", dense(kClassCount), {x});
  graph.finish(std::make_shared<SoftmaxCrossEntropy>());
  return graph;
}

Graph local_image() {
  Graph graph("local-image");
  NodeId x = graph.add_input({2, 14, 12});
  x = graph.add("local1",
                std::make_shared<LocallyConnected2d>(LocallyConnected2dOptions{
                    .filters = 4, .window = {.kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}}}),
                {x});
  x = graph.add("pool1", std::make_shared<L2Pool>(Window{.kernel = {2, 2}, .stride = {2, 2}}), {x});
  x = graph.add("norm1", std::make_shared<LocalResponseNorm>(), {x});
  x = graph.add("flatten", Reshape::flatten(), {x});
  x = graph.add("output", dense(kClassCount), {x});
  graph.finish(std::make_shared<SoftmaxCrossEntropy>());
  return graph;
}

constexpr std::int64_t kVocabulary = 50;

Graph words() {
  Graph graph("words");
  NodeId x = graph.add_input({6}, ValueKind::indices);
  x = graph.add("words", std::make_shared<Embedding>(EmbeddingOptions{.vocabulary = kVocabulary, .dimension = 8}), {x});
  x = graph.add("flatten", Reshape::flatten(), {x});
  x = graph.add("dense1", dense(24), {x});
  x = graph.add("relu1", std::make_shared<Relu>(), {x});
  x = graph.add("dense2", dense(kClassCount), {x});
  graph.finish(std::make_shared<SoftmaxCrossEntropy>());
  return graph;
}

Batch batch_for(const Graph& graph) {
  Batch batch;
  const bool indices = graph.node(0).output.kind == ValueKind::indices;
  const CounterRandom random(3, RandomUse::generate);
  const std::int64_t width = graph.node(0).output.shape.elements();
  for (std::int64_t i = 0; i < kRows; ++i) {
    batch.ids.push_back(static_cast<std::uint64_t>(i));
    batch.classes.push_back(static_cast<std::int32_t>(i % kClassCount));
    for (std::int64_t c = 0; c < width; ++c) {
      if (indices) {
        batch.indices.push_back(static_cast<std::int32_t>((i * 7 + c * 11) % kVocabulary));
        continue;
      }
      batch.dense.push_back(random.normal(static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(c)));
    }
  }
  return batch;
}

/// The part of a whole parameter that an entry is.
std::vector<float> slice_of(const ParameterEntry& entry, std::span<const float> whole) {
  const ParameterSpec& spec = entry.spec;
  if (spec.part_axis < 0) {
    return {whole.begin(), whole.end()};
  }
  std::int64_t outer = 1, inner = 1;
  for (int i = 0; i < spec.shape.rank(); ++i) {
    outer *= i < spec.part_axis ? spec.shape[i] : 1;
    inner *= i > spec.part_axis ? spec.shape[i] : 1;
  }
  std::vector<float> part;
  for (std::int64_t o = 0; o < outer; ++o) {
    const auto first = whole.begin() + (o * spec.part.whole + spec.part.begin) * inner;
    part.insert(part.end(), first, first + spec.part.size() * inner);
  }
  return part;
}

std::span<const float> range_of(std::span<const float> all, const Range& range) {
  return all.subspan(static_cast<std::size_t>(range.begin), static_cast<std::size_t>(range.size()));
}

struct Case {
  std::string name;
  Graph (*network)();
  int stages = 1;
  int tensor = 1;
  std::map<std::string, Cut> cuts = {};  ///< by layer; the others are whole
  std::map<std::string, int> first = {};  ///< which layer begins a stage
  std::int64_t micro_batches = 1;
  PipelineOrder order = PipelineOrder::one_forward_one_backward;
  bool recompute = false;
  std::vector<double> shares = {};
  std::size_t piece_bytes = 1 << 20;  ///< longer messages go in pieces
};

void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

Partition partition_of(const Case& one, const Graph& graph) {
  Partition partition = uncut(graph);
  partition.stages = one.stages;
  partition.tensor = one.tensor;
  partition.shares = one.shares;
  int stage = 0;
  for (NodeId id = 1; id <= graph.output(); ++id) {
    const Node& node = graph.node(id);
    if (const auto found = one.first.find(node.name); found != one.first.end()) {
      stage = found->second;
    }
    partition.stage[static_cast<std::size_t>(id)] = stage;
    if (const auto found = one.cuts.find(node.name); found != one.cuts.end()) {
      partition.cuts[static_cast<std::size_t>(id)] = found->second;
    }
  }
  return partition;
}

class CutNetwork : public testing::TestWithParam<Case> {};

TEST_P(CutNetwork, HasTheLossAndTheGradientOfTheWhole) {
  const Case& one = GetParam();
  const Graph graph = one.network();
  const ParameterTable table = layout_parameters(graph);
  const Partition partition = partition_of(one, graph);
  const Batch batch = batch_for(graph);
  Replica whole(graph, table, {.seed = 5, .micro_batches = one.micro_batches});
  table.initialize(9, whole.values());
  const LossSums expected = whole.compute_gradient(batch);
  const LossSums expected_evaluation = whole.evaluate(batch);

  std::mutex mutex;
  std::map<std::string, std::int64_t> held;  // floats of each parameter, in all parts
  run_ranks(partition.parts(), [&](Fabric& fabric) {
    const int stage = fabric.rank().value / one.tensor;
    const int position = fabric.rank().value % one.tensor;
    NetworkPart part = part_of(graph, table, partition, stage, position);
    PartLinks links(
        fabric,
        {.members = all_ranks(fabric), .tensor = one.tensor, .epoch = 4, .most_bytes_of_a_piece = one.piece_bytes});
    Replica replica(part.graph, part.table,
                    {.seed = 5,
                     .micro_batches = one.micro_batches,
                     .links = &links,
                     .order = one.order,
                     .recompute = one.recompute,
                     .partial_gradients = part.partial_gradients});
    part.table.initialize(9, replica.values());
    LossSums sums;
    LossSums evaluated;
    for (int repeat = 0; repeat < 2; ++repeat) {  // what one step leaves behind does not disturb the next
      sums = replica.compute_gradient(batch);
      evaluated = replica.evaluate(batch);
      replica.share(evaluated);
    }
    const std::scoped_lock lock(mutex);
    EXPECT_EQ(sums.rows, kRows);
    EXPECT_NEAR(sums.loss / expected.loss, 1, 1e-5);
    EXPECT_NEAR(evaluated.loss / expected_evaluation.loss, 1, 1e-5);
    for (const ParameterEntry& entry : part.table.entries()) {
      const Range range = table.at(entry.name).range;
      const std::vector<float> values = slice_of(entry, range_of(whole.values(), range));
      EXPECT_EQ(values, std::vector<float>(replica.values().begin() + entry.range.begin,
                                           replica.values().begin() + entry.range.end))
          << entry.name;
      const std::vector<float> wanted = slice_of(entry, range_of(whole.gradients()[0], range));
      const std::span<const float> made = range_of(replica.gradients()[0], entry.range);
      double distance = 0;
      double length = 0;
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        distance += (wanted[i] - made[i]) * (wanted[i] - made[i]);
        length += wanted[i] * wanted[i];
      }
      EXPECT_LE(std::sqrt(distance), 1e-5 * std::sqrt(length) + 1e-6) << entry.name << " of rank " << fabric.rank().value;
      held[entry.name] += entry.range.size();
    }
  });
  for (const ParameterEntry& entry : table.entries()) {
    EXPECT_GE(held[entry.name], entry.range.size()) << entry.name;
  }
}

const std::map<std::string, Cut> kDenseCuts = {{"dense1", Cut::outputs}, {"relu1", Cut::channels},
                                               {"dropout", Cut::channels}, {"dense2", Cut::inputs},
                                               {"dense3", Cut::outputs}};
const std::map<std::string, Cut> kColumns = {{"dense1", Cut::outputs}, {"dense2", Cut::outputs},
                                             {"dense3", Cut::outputs}};
const std::map<std::string, Cut> kRowsFirst = {{"dense1", Cut::inputs}, {"relu1", Cut::channels},
                                               {"dense2", Cut::inputs}, {"sigmoid", Cut::channels},
                                               {"dense3", Cut::inputs}};
const std::map<std::string, Cut> kChannels = {
    {"conv1", Cut::outputs}, {"relu1", Cut::channels},   {"pool1", Cut::channels}, {"conv2", Cut::inputs},
    {"relu2", Cut::channels}, {"pool2", Cut::channels}, {"flatten", Cut::channels}, {"dense1", Cut::inputs},
    {"dense2", Cut::outputs}};
const std::map<std::string, Cut> kRegions = {{"conv1", Cut::region}, {"relu1", Cut::region}, {"pool1", Cut::region},
                                             {"conv2", Cut::region}, {"relu2", Cut::region}, {"pool2", Cut::region},
                                             {"dense1", Cut::outputs}};
const std::map<std::string, Cut> kResidual = {
    {"stem", Cut::outputs},  {"bn0", Cut::channels},   {"relu0", Cut::channels}, {"conv1", Cut::outputs},
    {"bn1", Cut::channels},  {"relu1", Cut::channels}, {"conv2", Cut::outputs},  {"bn2", Cut::channels},
    {"add", Cut::channels},  {"relu2", Cut::channels}, {"pool", Cut::channels},  {"flatten", Cut::channels},
    {"fc", Cut::inputs}};
const std::map<std::string, Cut> kNormalizedRegions = {
    {"stem", Cut::region}, {"bn0", Cut::region},   {"relu0", Cut::region}, {"conv1", Cut::region},
    {"bn1", Cut::region},  {"relu1", Cut::region}, {"conv2", Cut::region}, {"bn2", Cut::region},
    {"add", Cut::region},  {"relu2", Cut::region}, {"fc", Cut::inputs}};
const std::map<std::string, Cut> kPlaces = {
    {"local1", Cut::region}, {"pool1", Cut::region}, {"norm1", Cut::region}, {"output", Cut::outputs}};

const std::map<std::string, Cut> kVocabularyCuts = {
    {"words", Cut::inputs}, {"dense1", Cut::outputs}, {"relu1", Cut::channels}, {"dense2", Cut::inputs}};

INSTANTIATE_TEST_SUITE_P(
    Cuts, CutNetwork,
    testing::Values(
        Case{"mlp_outputs_then_inputs", mlp, 1, 2, kDenseCuts}, Case{"mlp_outputs_of_3", mlp, 1, 3, kColumns},
        Case{"mlp_inputs_of_2", mlp, 1, 2, kRowsFirst},
        Case{"mlp_by_speed", mlp, 1, 2, kDenseCuts, {}, 1, {}, {}, {3, 1}},
        Case{"mlp_two_stages", mlp, 2, 1, {}, {{"dense2", 1}}},
        Case{"mlp_three_stages_1f1b", mlp, 3, 1, {}, {{"dense2", 1}, {"dense3", 2}}, 4},
        Case{"mlp_three_stages_gpipe", mlp, 3, 1, {}, {{"dense2", 1}, {"dense3", 2}}, 4, PipelineOrder::gpipe},
        Case{"mlp_three_stages_recomputed", mlp, 3, 1, {}, {{"dense2", 1}, {"dense3", 2}}, 5, {}, true},
        Case{"mlp_stages_of_two", mlp, 2, 2, kDenseCuts, {{"dense2", 1}}, 3},
        Case{"lenet_channels", convolutions, 1, 2, kChannels},
        Case{"lenet_channels_of_3", convolutions, 1, 3, kChannels}, Case{"lenet_regions", convolutions, 1, 2, kRegions},
        Case{"lenet_regions_of_3", convolutions, 1, 3, kRegions},
        Case{"lenet_regions_in_stages", convolutions, 2, 2, kRegions, {{"conv2", 1}}, 2},
        Case{"lenet_regions_in_pieces", convolutions, 2, 2, kRegions, {{"conv2", 1}}, 2, {}, {}, {}, 256},
        Case{"mlp_stages_of_two_in_pieces", mlp, 2, 2, kDenseCuts, {{"dense2", 1}}, 3, {}, {}, {}, 20},
        Case{"resnet_channels", residual, 1, 2, kResidual},
        Case{"norm_regions", normalized_images, 1, 2, kNormalizedRegions},
        Case{"norm_regions_by_speed", normalized_images, 1, 3, kNormalizedRegions, {}, 1, {}, {}, {2, 1, 1}},
        Case{"norm_regions_in_stages", normalized_images, 2, 2, kNormalizedRegions, {{"conv2", 1}}, 2},
        Case{"norm_regions_recomputed", normalized_images, 2, 2, kNormalizedRegions, {{"conv2", 1}}, 3, {}, true},
        Case{"resnet_stages_across_the_shortcut", residual, 2, 1, {}, {{"conv2", 1}}, 3},
        Case{"resnet_stages_of_two", residual, 2, 2, kResidual, {{"conv2", 1}}, 2, PipelineOrder::gpipe},
        Case{"resnet_recomputed", residual, 2, 1, {}, {{"conv2", 1}}, 3, PipelineOrder::gpipe, true},
        Case{"embedding_rows", words, 1, 2, kVocabularyCuts},
        Case{"embedding_rows_of_3", words, 1, 3, kVocabularyCuts, {}, 2},
        Case{"embedding_rows_in_stages", words, 2, 2, kVocabularyCuts, {{"dense1", 1}}, 3},
        Case{"local_image_regions", local_image, 1, 2, kPlaces},
        Case{"local_image_regions_of_3", local_image, 1, 3, kPlaces, {}, 2}),
    [](const testing::TestParamInfo<Case>& param) { return param.param.name; });

TEST(Partition, ACutThatALayerDoesNotBearIsRefusedWithWhatItBears) {
  const Graph graph = mlp();
  Partition partition = uncut(graph);
  partition.tensor = 2;
  partition.cuts[1] = Cut::region;
  try {
    (void)share_out(graph, partition);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("layer 'dense1' (dense) cannot be cut by region"));
    EXPECT_THAT(error.what(), testing::HasSubstr("possible: by outputs, by inputs, whole"));
  }
}

TEST(Partition, PlacesAreSharedOutInProportion) {
  EXPECT_EQ(cut_places(10, 3), (std::vector<std::int64_t>{0, 3, 7, 10}));
  EXPECT_EQ(cut_places(512, 2, {3, 1}), (std::vector<std::int64_t>{0, 384, 512}));
  EXPECT_EQ(cut_places(4, 4, {100, 1, 1, 1}), (std::vector<std::int64_t>{0, 1, 2, 3, 4}));
}

TEST(Partition, APartHoldsOnlyItsShare) {
  const Graph graph = mlp();
  const ParameterTable table = layout_parameters(graph);
  Partition partition = uncut(graph);
  partition.tensor = 2;
  for (const NodeId id : {1, 4, 6}) {
    partition.cuts[static_cast<std::size_t>(id)] = Cut::outputs;
  }
  const NetworkPart part = part_of(graph, table, partition, 0, 1);
  EXPECT_EQ(part.table.at("dense1.weight").shape, (Shape{20, 20}));
  EXPECT_LT(part.table.parameter_count(), table.parameter_count() * 6 / 10);
}

TEST(PipelineOrder, BackwardBeginsAsSoonAsItCan) {
  using Turn = PipelineTurn;
  EXPECT_EQ(pipeline_turns(PipelineOrder::one_forward_one_backward, 1, 3, 3),
            (std::vector<Turn>{{true, 0}, {true, 1}, {false, 0}, {true, 2}, {false, 1}, {false, 2}}));
  EXPECT_EQ(pipeline_turns(PipelineOrder::gpipe, 1, 3, 2),
            (std::vector<Turn>{{true, 0}, {true, 1}, {false, 0}, {false, 1}}));
  EXPECT_EQ(pipeline_slots(PipelineOrder::one_forward_one_backward, 0, 4, 16), 4);
  EXPECT_EQ(pipeline_slots(PipelineOrder::gpipe, 0, 4, 16), 16);
}

TEST(CutReplica, TellsOfGradientsThatAreFinalBeforeAllAre) {
  const Graph graph = normalized_images();
  const ParameterTable table = layout_parameters(graph);
  const Case one = {"", normalized_images, 2, 2, kNormalizedRegions, {{"conv2", 1}}, 2};
  const Partition partition = partition_of(one, graph);
  const Batch batch = batch_for(graph);
  /// Keeps what is said to be final when it is said.
  class Listener : public GradientListener {
   public:
    explicit Listener(std::span<const float> gradient) : gradient_(gradient) {}
    void final_from(int /*lane*/, std::int64_t offset) override {
      told_.emplace_back(offset, std::vector<float>(gradient_.begin() + offset, gradient_.end()));
    }
    std::vector<std::pair<std::int64_t, std::vector<float>>> told_;

   private:
    const std::span<const float> gradient_;
  };
  run_ranks(4, [&](Fabric& fabric) {
    NetworkPart part = part_of(graph, table, partition, fabric.rank().value / 2, fabric.rank().value % 2);
    PartLinks links(fabric, {.members = all_ranks(fabric), .tensor = 2, .epoch = 4});
    Replica replica(part.graph, part.table,
                    {.micro_batches = 2, .links = &links, .partial_gradients = part.partial_gradients});
    part.table.initialize(9, replica.values());
    Listener listener(replica.gradient_memory(kRows)[0]);
    (void)replica.compute_gradient(batch, &listener);
    ASSERT_GT(listener.told_.size(), 2U);
    EXPECT_EQ(listener.told_.back().first, 0);
    std::int64_t before = part.table.optimized_size();
    for (const auto& [offset, floats] : listener.told_) {
      EXPECT_LE(offset, before);
      before = offset;
      const std::span<const float> now = replica.gradients()[0];
      const auto optimized = static_cast<std::size_t>(part.table.optimized_size() - offset);
      EXPECT_TRUE(std::ranges::equal(std::span(floats).first(optimized),
                                     now.subspan(static_cast<std::size_t>(offset), optimized)))
          << "from " << offset << " of rank " << fabric.rank().value;
    }
  });
}

TEST(CutReplica, HoldsFewerActivationsIn1f1bThanInGpipe) {
  const Graph graph = mlp();
  const ParameterTable table = layout_parameters(graph);
  const Partition partition = partition_of({"", mlp, 2, 1, {}, {{"dense2", 1}}}, graph);
  const Batch batch = batch_for(graph);
  std::array<std::array<std::size_t, 2>, 2> bytes = {};  // of each order and stage
  for (const PipelineOrder order : {PipelineOrder::one_forward_one_backward, PipelineOrder::gpipe}) {
    run_ranks(2, [&](Fabric& fabric) {
      const int stage = fabric.rank().value;
      NetworkPart part = part_of(graph, table, partition, stage, 0);
      PartLinks links(fabric, {.members = all_ranks(fabric), .epoch = 4});
      Replica replica(part.graph, part.table, {.micro_batches = 6, .links = &links, .order = order});
      part.table.initialize(9, replica.values());
      (void)replica.compute_gradient(batch);
      bytes[static_cast<std::size_t>(order)][static_cast<std::size_t>(stage)] = replica.bytes();
    });
  }
  EXPECT_LT(bytes[0][0], bytes[1][0]);  // two micro-batches instead of six
  EXPECT_LT(bytes[0][1], bytes[1][1]);  // one instead of six
}

TEST(PartLinks, APartThatIsLostEndsTheStepOfTheOthers) {
  const Graph graph = mlp();
  const ParameterTable table = layout_parameters(graph);
  Partition partition = uncut(graph);
  partition.stages = 2;
  for (const NodeId id : {4, 5, 6}) {
    partition.stage[static_cast<std::size_t>(id)] = 1;
  }
  const Batch batch = batch_for(graph);
  run_ranks(2, [&](Fabric& fabric) {
    if (fabric.rank().value == 1) {
      return;
    }
    NetworkPart part = part_of(graph, table, partition, 0, 0);
    PartLinks links(fabric, {.members = all_ranks(fabric), .epoch = 4});
    Replica replica(part.graph, part.table, {.links = &links});
    part.table.initialize(1, replica.values());
    EXPECT_THROW((void)replica.compute_gradient(batch), ExchangeLost);
  });
}

}  // namespace
}  // namespace distbelief
