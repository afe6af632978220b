#include <gtest/gtest.h>

#include "base/error.h"
#include "base/parallel.h"
#include "graph/layer_check.h"
#include "graph/layers/activation.h"
#include "graph/layers/add.h"
#include "graph/layers/batch_norm.h"
#include "graph/layers/concat.h"
#include "graph/layers/conv2d.h"
#include "graph/layers/dense.h"
#include "graph/layers/dropout.h"
#include "graph/layers/embedding.h"
#include "graph/layers/factorization.h"
#include "graph/layers/l2_pool.h"
#include "graph/layers/layer_norm.h"
#include "graph/layers/local_contrast_norm.h"
#include "graph/layers/local_response_norm.h"
#include "graph/layers/locally_connected2d.h"
#include "graph/layers/pooling.h"
#include "graph/layers/relu.h"
#include "graph/layers/reshape.h"
#include "graph/layers/wait.h"

namespace distbelief {
namespace {

template <typename L, typename... Arguments>
LayerPtr make(Arguments... arguments) {
  return std::make_shared<L>(arguments...);
}

LayerPtr conv(Conv2dOptions options) { return make<Conv2d>(options); }

Window window(Extent kernel, Extent stride = {1, 1}, Extent padding = {0, 0}, Extent dilation = {1, 1}) {
  return {.kernel = kernel, .stride = stride, .padding = padding, .dilation = dilation};
}

ValueSpec image(std::int64_t batch, std::int64_t channels, std::int64_t height, std::int64_t width) {
  return dense_value({batch, channels, height, width});
}

std::vector<LayerCase> all_cases() {
  using Kind = PoolingOptions::Kind;
  using Smooth = Activation::Kind;
  const ValueSpec rows = dense_value({5, 7});
  const ValueSpec picture = image(2, 3, 7, 6);
  return {
      {"dense", make<Dense>(DenseOptions{.units = 3}), {rows}},
      {"wait", make<Wait>(0.0), {rows}},
      {"dense_no_bias", make<Dense>(DenseOptions{.units = 9, .bias = false}), {rows}},
      {"dense_of_three", make<Dense>(DenseOptions{.units = 4}), {dense_value({2, 3, 5})}},
      {"dense_sparse", make<Dense>(DenseOptions{.units = 3}), {{{4, 11}, ValueKind::sparse}}},
      {"conv_plain", conv({.filters = 5, .window = window({3, 3})}), {picture}},
      {"conv_same", conv({.filters = 8, .window = window({5, 5}, {1, 1}, {2, 2})}), {image(2, 1, 8, 8)}},
      {"conv_stride", conv({.filters = 16, .window = window({3, 3}, {2, 2}, {1, 1})}), {image(2, 8, 7, 6)}},
      {"conv_oblong", conv({.filters = 3, .window = window({3, 2}, {1, 2}, {2, 0})}), {picture}},
      {"conv_dilation", conv({.filters = 2, .window = window({3, 3}, {1, 1}, {2, 2}, {2, 2})}), {picture}},
      {"conv_groups", conv({.filters = 6, .window = window({3, 3}), .groups = 2}), {image(2, 4, 5, 5)}},
      {"conv_depthwise",
       conv({.filters = 5, .window = window({3, 3}, {1, 1}, {1, 1}), .groups = 5}),
       {image(2, 5, 6, 5)}},
      {"conv_depthwise_wide",
       conv({.filters = 8, .window = window({3, 3}, {2, 2}, {1, 1}), .groups = 8}),
       {image(2, 8, 6, 5)}},
      {"conv_pointwise", conv({.filters = 9, .window = window({1, 1}), .bias = false}), {image(3, 17, 4, 3)}},
      {"conv_odd_channels", conv({.filters = 19, .window = window({3, 3}, {1, 1}, {1, 1})}), {image(2, 13, 4, 5)}},
      {"locally_connected",
       make<LocallyConnected2d>(LocallyConnected2dOptions{.filters = 3, .window = window({3, 3})}),
       {picture}},
      {"locally_connected_padded",
       make<LocallyConnected2d>(
           LocallyConnected2dOptions{.filters = 5, .window = window({3, 2}, {2, 1}, {1, 1}, {1, 2}), .bias = false}),
       {image(18, 2, 5, 6)}},
      {"max_pool", make<Pooling>(PoolingOptions{.kind = Kind::max, .window = window({2, 2}, {2, 2})}), {picture}},
      {"max_pool_padded",
       make<Pooling>(PoolingOptions{.kind = Kind::max, .window = window({3, 3}, {2, 2}, {1, 1})}),
       {image(2, 9, 7, 6)}},
      {"average_pool",
       make<Pooling>(PoolingOptions{.kind = Kind::average, .window = window({3, 2}, {2, 1}, {1, 0})}),
       {picture}},
      {"average_pool_padding",
       make<Pooling>(PoolingOptions{.kind = Kind::average_with_padding, .window = window({3, 3}, {2, 2}, {1, 1})}),
       {image(2, 8, 7, 6)}},
      {"global_average_pool",
       make<Pooling>(PoolingOptions{.kind = Kind::average, .window = {}, .global = true}),
       {picture}},
      {"global_max_pool",
       make<Pooling>(PoolingOptions{.kind = Kind::max, .window = {}, .global = true}),
       {image(2, 8, 4, 5)}},
      {"l2_pool", make<L2Pool>(window({2, 2}, {2, 2})), {picture}},
      {"l2_pool_overlap", make<L2Pool>(window({3, 3}, {2, 1}, {1, 1})), {picture}},
      {"batch_norm_images", make<BatchNorm>(), {image(4, 5, 3, 4)}, 1e-2},
      {"batch_norm_images_wide", make<BatchNorm>(), {image(4, 16, 3, 4)}, 1e-2},
      {"batch_norm_rows", make<BatchNorm>(), {dense_value({9, 5})}, 1e-2},
      {"layer_norm", make<LayerNorm>(), {dense_value({5, 37})}, 5e-3},
      {"layer_norm_two_axes", make<LayerNorm>(LayerNormOptions{.axes = 2}), {dense_value({3, 4, 5})}, 5e-3},
      {"local_response_norm",
       make<LocalResponseNorm>(LocalResponseNormOptions{.size = 5, .alpha = 0.5F, .k = 2.0F}),
       {image(2, 7, 3, 4)}},
      {"local_response_norm_even",
       make<LocalResponseNorm>(LocalResponseNormOptions{.size = 4, .alpha = 0.3F, .beta = 0.6F}),
       {image(2, 7, 3, 4)}},
      {"local_contrast_norm", make<LocalContrastNorm>(LocalContrastNormOptions{.kernel = {3, 5}}), {picture}, 1e-2},
      {"local_contrast_norm_floor",  // the floor is above all contrasts
       make<LocalContrastNorm>(LocalContrastNormOptions{.kernel = {3, 3}, .floor = 9.0F}),
       {picture}},
      {"relu", make<Relu>(), {image(2, 3, 4, 5)}},
      {"sigmoid", make<Activation>(Smooth::sigmoid), {image(2, 3, 4, 5)}},
      {"tanh", make<Activation>(Smooth::tanh), {image(2, 3, 4, 5)}},
      {"gelu", make<Activation>(Smooth::gelu), {image(2, 3, 4, 5)}},
      {"gelu_tanh", make<Activation>(Smooth::gelu_tanh), {image(2, 3, 4, 5)}},
      {"softmax", make<Softmax>(), {dense_value({4, 3, 9})}},
      {"dropout", make<Dropout>(DropoutOptions{.rate = 0.4F, .salt = 3}), {dense_value({5, 21})}},
      {"add", make<Add>(), {picture, picture}},
      {"add_three", make<Add>(), {picture, picture, picture}},
      {"concat", make<Concat>(), {image(2, 3, 2, 3), image(2, 1, 2, 3), image(2, 4, 2, 3)}},
      {"concat_last", make<Concat>(2), {dense_value({2, 3, 4}), dense_value({2, 3, 1})}},
      {"flatten", Reshape::flatten(), {picture}},
      {"reshape", make<Reshape>(std::vector<std::int64_t>{6, -1}), {picture}},
      {"embedding", make<Embedding>(EmbeddingOptions{.vocabulary = 6, .dimension = 4}), {{{3, 5}, ValueKind::indices}}},
      {"factorization_sparse", make<FactorizationMachine>(4), {{{5, 9}, ValueKind::sparse}}},
      {"factorization_dense", make<FactorizationMachine>(3), {rows}},
  };
}

class LayerContract : public testing::TestWithParam<LayerCase> {
 protected:
  /// Forward and backward on fixed random numbers.
  static void run_once(LayerRun& run) {
    static const std::vector<std::uint64_t> ids = [] {
      std::vector<std::uint64_t> all(32);
      std::iota(all.begin(), all.end(), 7);
      return all;
    }();
    fill_at_random(run, std::span(ids).first(static_cast<std::size_t>(run.input_specs()[0].shape[0])));
    run.forward();
    run.backward(normal_numbers(run.output_shape().elements(), 99));
  }

  static void expect_near(const std::vector<float>& a, const std::vector<float>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      ASSERT_NEAR(a[i], b[i], 1e-5F * (1.0F + std::abs(a[i]))) << i;
    }
  }

  void SetUp() override { set_thread_count(1); }
};

TEST_P(LayerContract, GradientsMatchFiniteDifferences) { expect_true_gradients(GetParam(), {}); }

TEST_P(LayerContract, GradientsMatchFiniteDifferencesInBlockedLayouts) {
  expect_true_gradients(GetParam(), {.blocked = true});
}

TEST_P(LayerContract, SharedMemoryChangesNothing) {
  LayerRun apart(*GetParam().layer, GetParam().inputs, {});
  LayerRun shared(*GetParam().layer, GetParam().inputs, {.in_place = true});
  run_once(apart);
  run_once(shared);
  EXPECT_EQ(apart.output, shared.output);
  EXPECT_EQ(apart.input_gradients, shared.input_gradients);
  EXPECT_EQ(apart.parameter_gradients, shared.parameter_gradients);
}

TEST_P(LayerContract, ParameterGradientsDoNotDependOnWhoWantsInputGradients) {
  LayerRun wanted(*GetParam().layer, GetParam().inputs, {});
  LayerRun unwanted(*GetParam().layer, GetParam().inputs, {.input_gradients = false});
  if (wanted.parameters.empty()) {
    return;  // the executor does not call backward() then
  }
  run_once(wanted);
  run_once(unwanted);
  EXPECT_EQ(wanted.parameter_gradients, unwanted.parameter_gradients);
}

TEST_P(LayerContract, TwoThreadsComputeWhatOneDoes) {
  LayerRun one(*GetParam().layer, GetParam().inputs, {});
  run_once(one);
  set_thread_count(2);
  LayerRun two(*GetParam().layer, GetParam().inputs, {});
  run_once(two);
  expect_near(one.output, two.output);
  for (std::size_t i = 0; i < one.input_gradients.size(); ++i) {
    expect_near(one.input_gradients[i], two.input_gradients[i]);
  }
  for (std::size_t i = 0; i < one.parameter_gradients.size(); ++i) {
    expect_near(one.parameter_gradients[i], two.parameter_gradients[i]);
  }
}

TEST_P(LayerContract, EqualRunsGiveEqualBits) {
  set_thread_count(2);
  LayerRun first(*GetParam().layer, GetParam().inputs, {});
  LayerRun second(*GetParam().layer, GetParam().inputs, {});
  run_once(first);
  run_once(second);
  EXPECT_EQ(first.output, second.output);
  EXPECT_EQ(first.input_gradients, second.input_gradients);
  EXPECT_EQ(first.parameter_gradients, second.parameter_gradients);
}

TEST_P(LayerContract, InferenceNeedsNoGradientMemory) {
  LayerRun run(*GetParam().layer, GetParam().inputs, {.purpose = Purpose::inference, .in_place = true});
  const std::vector<std::uint64_t> ids(32, 1);
  fill_at_random(run, std::span(ids).first(static_cast<std::size_t>(GetParam().inputs[0].shape[0])));
  run.forward();
  for (const float value : run.output) {
    ASSERT_TRUE(std::isfinite(value));
  }
}

INSTANTIATE_TEST_SUITE_P(Layers, LayerContract, testing::ValuesIn(all_cases()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace distbelief
