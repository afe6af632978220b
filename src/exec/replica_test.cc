#include "exec/replica.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/random.h"
#include "graph/layers/activation.h"
#include "graph/layers/add.h"
#include "graph/layers/batch_norm.h"
#include "graph/layers/concat.h"
#include "graph/layers/conv2d.h"
#include "graph/layers/dense.h"
#include "graph/layers/dropout.h"
#include "graph/layers/l2_pool.h"
#include "graph/layers/layer_norm.h"
#include "graph/layers/local_contrast_norm.h"
#include "graph/layers/local_response_norm.h"
#include "graph/layers/locally_connected2d.h"
#include "graph/layers/pooling.h"
#include "graph/layers/relu.h"
#include "graph/layers/reshape.h"
#include "graph/losses/softmax_cross_entropy.h"
#include "plan/parameter_layout.h"

namespace distbelief {
namespace {

LayerPtr conv(std::int64_t filters, std::int64_t size, std::int64_t stride = 1) {
  return std::make_shared<Conv2d>(
      Conv2dOptions{.filters = filters,
                    .window = {.kernel = {size, size}, .stride = {stride, stride}, .padding = {size / 2, size / 2}}});
}

LayerPtr small_dense(std::int64_t units) { return std::make_shared<Dense>(DenseOptions{.units = units}); }

/// A convolution, a residual block with a shortcut, pooling and two dense layers: every kind of memory sharing.
Graph small_residual_network(bool batch_norm) {
  Graph graph("small");
  NodeId x = graph.add_input({2, 8, 8});
  x = graph.add("conv1", conv(5, 3), {x});
  x = graph.add("relu1", std::make_shared<Relu>(), {x});
  NodeId y = graph.add("conv2", conv(5, 3), {x});
  if (batch_norm) {
    y = graph.add("norm2", std::make_shared<BatchNorm>(), {y});
  }
  y = graph.add("add", std::make_shared<Add>(), {y, x});
  y = graph.add("relu2", std::make_shared<Relu>(), {y});
  NodeId z = graph.add("conv3", conv(5, 3), {y});
  z = graph.add("add2", std::make_shared<Add>(), {z, y});
  z = graph.add("relu3", std::make_shared<Relu>(), {z});
  z = graph.add("pool", std::make_shared<Pooling>(PoolingOptions{.window = {.kernel = {2, 2}, .stride = {2, 2}}}), {z});
  z = graph.add("flatten", Reshape::flatten(), {z});
  z = graph.add("dense1", small_dense(7), {z});
  z = graph.add("relu4", std::make_shared<Relu>(), {z});
  graph.add("dense2", small_dense(3), {z});
  graph.finish(std::make_shared<SoftmaxCrossEntropy>());
  return graph;
}

Batch random_batch(std::int64_t rows, std::int64_t width, std::int64_t classes) {
  const CounterRandom random(5, RandomUse::generate);
  Batch batch;
  for (std::int64_t r = 0; r < rows; ++r) {
    batch.ids.push_back(static_cast<std::uint64_t>(r));
    batch.classes.push_back(static_cast<std::int32_t>(r % classes));
    for (std::int64_t i = 0; i < width; ++i) {
      batch.dense.push_back(random.normal(static_cast<std::uint64_t>(r), static_cast<std::uint64_t>(i)));
    }
  }
  return batch;
}

double directional_derivative_error(Replica& replica, const Batch& batch) {
  // Along a random direction v: (L(w + hv) − L(w − hv)) / 2h against g·v.
  const ParameterTable& table = replica.table();
  const CounterRandom random(9, RandomUse::generate);
  std::vector<float> direction(static_cast<std::size_t>(table.size()), 0.0F);
  for (const ParameterEntry& entry : table.entries()) {
    if (entry.spec.kind == ParameterKind::optimized) {
      for (std::int64_t i = entry.range.begin; i < entry.range.end; ++i) {
        direction[static_cast<std::size_t>(i)] = random.normal(1, static_cast<std::uint64_t>(i));
      }
    }
  }
  replica.compute_gradient(batch);
  double expected = 0;
  for (const auto part : replica.gradients()) {
    for (std::size_t i = 0; i < direction.size(); ++i) {
      expected += static_cast<double>(part[i]) * direction[i];
    }
  }
  const float h = 2e-4F;
  const auto loss_at = [&](float distance) {
    for (std::size_t i = 0; i < direction.size(); ++i) {
      replica.values()[i] += distance * direction[i];
    }
    const double loss = replica.compute_gradient(batch).loss;
    for (std::size_t i = 0; i < direction.size(); ++i) {
      replica.values()[i] -= distance * direction[i];
    }
    return loss;
  };
  const double measured = (loss_at(h) - loss_at(-h)) / (2.0 * h);
  return std::abs(measured - expected) / std::max(1.0, std::abs(expected));
}

TEST(Replica, GradientMatchesFiniteDifferencesThroughShortcuts) {
  for (const bool batch_norm : {false, true}) {
    const Graph graph = small_residual_network(batch_norm);
    const ParameterTable table = layout_parameters(graph);
    Replica replica(graph, table, {});
    table.initialize(1, replica.values());
    EXPECT_LT(directional_derivative_error(replica, random_batch(6, 128, 3)), 2e-2) << "batch norm " << batch_norm;
  }
}

/// Layers that are not in the other network, in one: branches, masks, views, plain and blocked layouts side by side.
Graph network_of_the_rest() {
  Graph graph("rest");
  const NodeId x = graph.add_input({2, 8, 8});
  NodeId a = graph.add("local",
                       std::make_shared<LocallyConnected2d>(LocallyConnected2dOptions{
                           .filters = 3, .window = {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}}),
                       {x});
  a = graph.add("contrast", std::make_shared<LocalContrastNorm>(LocalContrastNormOptions{.kernel = {3, 3}}), {a});
  NodeId b = graph.add("conv", conv(5, 3, 2), {x});
  b = graph.add("gelu", std::make_shared<Activation>(Activation::Kind::gelu), {b});
  b = graph.add("response", std::make_shared<LocalResponseNorm>(), {b});
  NodeId y = graph.add("concat", std::make_shared<Concat>(), {a, b});
  y = graph.add("dropout", std::make_shared<Dropout>(DropoutOptions{.rate = 0.3F, .salt = 1}), {y});
  y = graph.add("l2", std::make_shared<L2Pool>(Window{.kernel = {2, 2}, .stride = {2, 2}}), {y});
  y = graph.add("tanh", std::make_shared<Activation>(Activation::Kind::tanh), {y});
  y = graph.add("thrice", std::make_shared<Add>(), {y, y, y});
  y = graph.add("flatten", Reshape::flatten(), {y});
  y = graph.add("norm", std::make_shared<LayerNorm>(), {y});
  y = graph.add("hidden", small_dense(6), {y});
  y = graph.add("sigmoid", std::make_shared<Activation>(Activation::Kind::sigmoid), {y});
  y = graph.add("dropout2", std::make_shared<Dropout>(DropoutOptions{.rate = 0.5F, .salt = 2}), {y});
  graph.add("output", small_dense(3), {y});
  graph.finish(std::make_shared<SoftmaxCrossEntropy>());
  return graph;
}

TEST(Replica, GradientMatchesFiniteDifferencesThroughEveryOtherLayer) {
  const Graph graph = network_of_the_rest();
  const ParameterTable table = layout_parameters(graph);
  Replica replica(graph, table, {});
  table.initialize(1, replica.values());
  EXPECT_LT(directional_derivative_error(replica, random_batch(6, 128, 3)), 1e-2);
}

TEST(Replica, LanesDropTheSameElementsAsKernels) {
  const Graph graph = network_of_the_rest();
  const ParameterTable table = layout_parameters(graph);
  const Batch batch = random_batch(7, 128, 3);
  Replica one(graph, table, {.threads = 1});
  Replica lanes(graph, table, {.threads = 2, .mode = ThreadMode::lanes});
  table.initialize(1, one.values());
  table.initialize(1, lanes.values());
  EXPECT_NEAR(one.compute_gradient(batch).loss, lanes.compute_gradient(batch).loss, 1e-4);
  for (std::size_t i = 0; i < static_cast<std::size_t>(table.size()); ++i) {
    EXPECT_NEAR(one.gradients()[0][i], lanes.gradients()[0][i] + lanes.gradients()[1][i], 1e-4F);
  }
}

TEST(Replica, LanesGiveTheSameGradientAsKernels) {
  const Graph graph = small_residual_network(false);
  const ParameterTable table = layout_parameters(graph);
  const Batch batch = random_batch(7, 128, 3);
  Replica one(graph, table, {.threads = 1});
  Replica lanes(graph, table, {.threads = 3, .mode = ThreadMode::lanes});
  table.initialize(1, one.values());
  table.initialize(1, lanes.values());
  EXPECT_NEAR(one.compute_gradient(batch).loss, lanes.compute_gradient(batch).loss, 1e-5);
  ASSERT_EQ(lanes.gradients().size(), 3U);
  for (std::size_t i = 0; i < static_cast<std::size_t>(table.size()); ++i) {
    const float sum = lanes.gradients()[0][i] + lanes.gradients()[1][i] + lanes.gradients()[2][i];
    EXPECT_NEAR(one.gradients()[0][i], sum, 1e-3F);
  }
  EXPECT_NEAR(one.evaluate(batch).loss, lanes.evaluate(batch).loss, 1e-5);
}

TEST(Replica, MicroBatchesAddUpToTheGradientOfTheBatch) {
  const Graph graph = small_residual_network(false);
  const ParameterTable table = layout_parameters(graph);
  const Batch batch = random_batch(11, 128, 3);
  Replica whole(graph, table, {});
  table.initialize(1, whole.values());
  const LossSums sums = whole.compute_gradient(batch);
  for (const std::int64_t parts : {2, 3, 11, 50}) {
    for (const int threads : {1, 2}) {
      Replica parted(graph, table, {.threads = threads, .mode = ThreadMode::lanes, .micro_batches = parts});
      table.initialize(1, parted.values());
      for (int again = 0; again < 2; ++again) {
        EXPECT_NEAR(parted.compute_gradient(batch).loss, sums.loss, 1e-5 * sums.loss);
      }
      for (std::size_t i = 0; i < static_cast<std::size_t>(table.size()); ++i) {
        float sum = 0;
        for (const auto part : parted.gradients()) {
          sum += part[i];
        }
        ASSERT_NEAR(sum, whole.gradients()[0][i], 2e-4) << parts << " parts, place " << i;
      }
    }
  }
}

TEST(Replica, MicroBatchesNeedTheActivationsOfOne) {
  const Graph graph = small_residual_network(true);
  const ParameterTable table = layout_parameters(graph);
  const Batch batch = random_batch(64, 128, 3);
  const auto bytes = [&](std::int64_t parts) {
    Replica replica(graph, table, {.micro_batches = parts});
    table.initialize(1, replica.values());
    (void)replica.compute_gradient(batch);
    return replica.bytes();
  };
  EXPECT_LT(bytes(8), bytes(1) / 4);
}

TEST(Replica, MicroBatchesObserveTheMeanOfWhatEachObserves) {
  const Graph graph = small_residual_network(true);
  const ParameterTable table = layout_parameters(graph);
  Replica parted(graph, table, {.micro_batches = 2});
  Replica whole(graph, table, {});
  table.initialize(1, parted.values());
  table.initialize(1, whole.values());
  const Batch batch = random_batch(8, 128, 3);
  (void)parted.compute_gradient(batch);
  std::vector<float> mean(static_cast<std::size_t>(table.size()));
  for (int half = 0; half < 2; ++half) {
    Batch rows = batch;
    rows.ids = {batch.ids.begin() + half * 4, batch.ids.begin() + half * 4 + 4};
    rows.classes = {batch.classes.begin() + half * 4, batch.classes.begin() + half * 4 + 4};
    rows.dense = {batch.dense.begin() + half * 4 * 128, batch.dense.begin() + (half * 4 + 4) * 128};
    (void)whole.compute_gradient(rows);
    for (std::size_t i = 0; i < mean.size(); ++i) {
      mean[i] += whole.gradients()[0][i] / 2;
    }
  }
  for (auto i = static_cast<std::size_t>(table.optimized_size()); i < mean.size(); ++i) {
    EXPECT_NEAR(parted.gradients()[0][i], mean[i], 1e-5);
  }
}

TEST(Replica, ListenersHearOnlyOfWhatAllMicroBatchesGave) {
  /// Keeps what was final when it heard so.
  struct Listener : GradientListener {
    void final_from(int /*lane*/, std::int64_t offset) override {
      EXPECT_LT(offset, from);
      std::copy(gradient.begin() + offset, gradient.begin() + from, heard.begin() + offset);
      from = offset;
    }
    std::span<const float> gradient;
    std::vector<float> heard;
    std::int64_t from = 0;
  };
  const Graph graph = small_residual_network(true);
  const ParameterTable table = layout_parameters(graph);
  Replica replica(graph, table, {.micro_batches = 3});
  table.initialize(1, replica.values());
  const Batch batch = random_batch(8, 128, 3);
  Listener listener;
  listener.gradient = replica.gradient_memory(batch.size())[0];
  listener.heard.resize(static_cast<std::size_t>(table.optimized_size()));
  listener.from = table.optimized_size();
  (void)replica.compute_gradient(batch, &listener);
  EXPECT_EQ(listener.from, 0);
  const std::span<const float> all = replica.gradients()[0].subspan(0, listener.heard.size());
  EXPECT_TRUE(std::ranges::equal(listener.heard, all));
}

TEST(Replica, EqualRunsGiveEqualBits) {
  const Graph graph = small_residual_network(true);
  const ParameterTable table = layout_parameters(graph);
  const Batch batch = random_batch(8, 128, 3);
  std::vector<std::vector<float>> gradients;
  for (int run = 0; run < 2; ++run) {
    Replica replica(graph, table, {.threads = 2, .mode = ThreadMode::lanes});
    table.initialize(1, replica.values());
    replica.compute_gradient(batch);
    gradients.emplace_back(replica.gradients()[1].begin(), replica.gradients()[1].end());
  }
  EXPECT_EQ(gradients[0], gradients[1]);
}

TEST(Replica, BatchesOfOtherSizesShareMemory) {
  const Graph graph = small_residual_network(false);
  const ParameterTable table = layout_parameters(graph);
  Replica replica(graph, table, {});
  table.initialize(1, replica.values());
  const Batch small = random_batch(3, 128, 3);
  const double before = replica.compute_gradient(small).loss;
  replica.compute_gradient(random_batch(9, 128, 3));
  EXPECT_EQ(replica.compute_gradient(small).loss, before);
}

TEST(Replica, NamesWhatIsNotFinite) {
  const Graph graph = small_residual_network(false);
  const ParameterTable table = layout_parameters(graph);
  Replica replica(graph, table, {});
  table.initialize(1, replica.values());
  Batch batch = random_batch(3, 128, 3);
  EXPECT_EQ(replica.find_nonfinite(batch), "");
  batch.dense[5] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(replica.find_nonfinite(batch), "layer 'conv1'");
  const auto place = static_cast<std::size_t>(table.at("dense1.bias").range.begin);
  replica.values()[place] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(replica.find_nonfinite(batch), "parameter 'dense1.bias'");
}

TEST(Replica, NormalisationOfFrozenLayersStillTrains) {
  const Graph graph = small_residual_network(true);
  ParameterTable table = layout_parameters(graph);
  table.freeze("conv1*");
  table.freeze("conv2*");
  Replica replica(graph, table, {});
  table.initialize(1, replica.values());
  replica.compute_gradient(random_batch(3, 128, 3));
  EXPECT_NE(replica.gradients()[0][static_cast<std::size_t>(table.at("norm2.shift").range.begin)], 0.0F);
}

TEST(Replica, FrozenParametersStopTheBackwardPass) {
  const Graph graph = small_residual_network(false);
  ParameterTable table = layout_parameters(graph);
  table.freeze("conv*");
  Replica replica(graph, table, {});
  table.initialize(1, replica.values());
  replica.compute_gradient(random_batch(3, 128, 3));
  const auto gradient = replica.gradients()[0];
  EXPECT_EQ(gradient[static_cast<std::size_t>(table.at("conv1.weight").range.begin)], 0.0F);
  EXPECT_NE(gradient[static_cast<std::size_t>(table.at("dense2.bias").range.begin)], 0.0F);
}

}  // namespace
}  // namespace distbelief
