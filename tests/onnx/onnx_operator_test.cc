// Operators of ONNX against our layers and losses. The cases are named one by one: those whose operator, attributes and
// shapes we have (padding alike on both sides, no ceil mode, the batch left alone).
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <iostream>

#include "graph/layer_run.h"
#include "graph/layers/activation.h"
#include "graph/layers/add.h"
#include "graph/layers/batch_norm.h"
#include "graph/layers/concat.h"
#include "graph/layers/conv2d.h"
#include "graph/layers/dense.h"
#include "graph/layers/dropout.h"
#include "graph/layers/embedding.h"
#include "graph/layers/layer_norm.h"
#include "graph/layers/local_response_norm.h"
#include "graph/layers/pooling.h"
#include "graph/layers/relu.h"
#include "graph/layers/reshape.h"
#include "graph/losses/softmax_cross_entropy.h"
#include "node_case.h"

namespace distbelief {
namespace {

ValueSpec dense(const NodeTensor& tensor) { return {tensor.shape, ValueKind::dense}; }

void expect_values(const std::vector<float>& ours, const std::vector<float>& expected, const std::string& what) {
  ASSERT_EQ(ours.size(), expected.size()) << what;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    ASSERT_NEAR(ours[i], expected[i], 1e-5 * std::max(1.0F, std::abs(expected[i]))) << what << ", element " << i;
  }
}

/// Runs a layer on the operator's first `values` inputs with these parameters, and compares the first output.
void expect_layer(const NodeCase& test, const Layer& layer, std::vector<std::vector<float>> parameters = {},
                  std::size_t values = 1) {
  std::vector<ValueSpec> specs;
  for (std::size_t i = 0; i < values; ++i) {
    specs.push_back(dense(test.inputs()[i]));
  }
  for (const bool blocked : {false, true}) {
    LayerRun run(layer, specs, {.purpose = Purpose::inference, .blocked = blocked});
    for (std::size_t i = 0; i < values; ++i) {
      run.inputs[i] = test.inputs()[i].values;
    }
    ASSERT_EQ(run.parameters.size(), parameters.size());
    run.parameters = parameters;
    EXPECT_EQ(run.output_shape().text(), test.outputs()[0].shape.text());
    run.forward();
    expect_values(run.output, test.outputs()[0].values, test.outputs()[0].name);
  }
}

Extent extent(const std::vector<std::int64_t>& pair) { return {pair.at(0), pair.at(1)}; }

Window window_of(const NodeCase& test) {
  const Shape& image = test.inputs()[0].shape;
  Window window;
  window.kernel = extent(test.has("kernel_shape") ? test.integers("kernel_shape", {})
                                                  : std::vector{test.inputs()[1].shape[2], test.inputs()[1].shape[3]});
  window.stride = extent(test.integers("strides", {1, 1}));
  window.dilation = extent(test.integers("dilations", {1, 1}));
  std::vector<std::int64_t> pads = test.integers("pads", {0, 0, 0, 0});
  if (test.text("auto_pad", "NOTSET").starts_with("SAME")) {
    // As many places as steps fit the image; the padding for it, which must be even here.
    const auto around = [](std::int64_t size, std::int64_t kernel, std::int64_t stride) {
      return ((size + stride - 1) / stride - 1) * stride + kernel - size;
    };
    const std::int64_t down = around(image[2], window.kernel.height, window.stride.height);
    const std::int64_t across = around(image[3], window.kernel.width, window.stride.width);
    pads = {down / 2, across / 2, down - down / 2, across - across / 2};
  }
  EXPECT_EQ(pads.at(0), pads.at(2)) << "not a case for us: padding differs between the sides";
  EXPECT_EQ(pads.at(1), pads.at(3));
  EXPECT_EQ(test.integer("ceil_mode", 0), 0);
  window.padding = {pads[0], pads[1]};
  return window;
}

std::vector<float> transposed(const NodeTensor& matrix) {
  std::vector<float> result;
  for (std::int64_t c = 0; c < matrix.shape[1]; ++c) {
    for (std::int64_t r = 0; r < matrix.shape[0]; ++r) {
      result.push_back(matrix.values[static_cast<std::size_t>(r * matrix.shape[1] + c)]);
    }
  }
  return result;
}

void check_conv(const NodeCase& test) {
  const bool bias = test.inputs().size() > 2;
  Conv2dOptions options;
  options.filters = test.inputs()[1].shape[0];
  options.window = window_of(test);
  options.groups = test.integer("group", 1);
  options.bias = bias;
  std::vector<std::vector<float>> parameters = {test.inputs()[1].values};
  if (bias) {
    parameters.push_back(test.inputs()[2].values);
  }
  expect_layer(test, Conv2d(options), parameters);
}

void check_pool(const NodeCase& test) {
  PoolingOptions options;
  options.window = window_of(test);
  if (test.op() == "AveragePool") {
    options.kind = test.integer("count_include_pad", 0) != 0 ? PoolingOptions::Kind::average_with_padding
                                                             : PoolingOptions::Kind::average;
  }
  expect_layer(test, Pooling(options));
}

void check_global_pool(const NodeCase& test) {
  PoolingOptions options;
  options.kind = test.op() == "GlobalMaxPool" ? PoolingOptions::Kind::max : PoolingOptions::Kind::average;
  options.global = true;
  expect_layer(test, Pooling(options));
}

void check_batch_norm(const NodeCase& test) {
  const BatchNormOptions options = {.epsilon = test.number("epsilon", 1e-5F),
                                    .momentum = 1.0F - test.number("momentum", 0.9F)};
  std::vector<std::vector<float>> parameters;
  for (std::size_t i = 1; i < 5; ++i) {
    parameters.push_back(test.inputs()[i].values);
  }
  if (test.integer("training_mode", 0) == 0) {
    expect_layer(test, BatchNorm(options), parameters);
    return;
  }
  LayerRun run(BatchNorm(options), {dense(test.inputs()[0])}, {});
  run.inputs[0] = test.inputs()[0].values;
  run.parameters = parameters;
  run.forward();
  expect_values(run.output, test.outputs()[0].values, "output");
  const auto count = static_cast<float>(run.inputs[0].size() / parameters[0].size());
  for (std::size_t statistic : {std::size_t{2}, std::size_t{3}}) {
    std::vector<float> updated = parameters[statistic];
    for (std::size_t i = 0; i < updated.size(); ++i) {
      float observed = run.parameter_gradients[statistic][i];
      if (statistic == 3) {
        observed *= (count - 1) / count;  // ONNX keeps the variance of the sample, we that of the population it is from
      }
      updated[i] += options.momentum * (observed - updated[i]);
    }
    expect_values(updated, test.outputs()[statistic - 1].values, "running statistics");
  }
}

void check_layer_norm(const NodeCase& test) {
  const int rank = test.inputs()[0].shape.rank();
  const auto axis = static_cast<int>(test.integer("axis", -1));
  expect_layer(test, LayerNorm({.axes = axis < 0 ? -axis : rank - axis, .epsilon = test.number("epsilon", 1e-5F)}),
               {test.inputs()[1].values, test.inputs()[2].values});
}

void check_lrn(const NodeCase& test) {
  expect_layer(test, LocalResponseNorm({.size = test.integer("size", 0),
                                        .alpha = test.number("alpha", 1e-4F),
                                        .beta = test.number("beta", 0.75F),
                                        .k = test.number("bias", 1.0F)}));
}

void check_product(const NodeCase& test) {
  const NodeTensor& b = test.inputs()[1];
  ASSERT_EQ(test.integer("transA", 0), 0);
  ASSERT_EQ(test.number("alpha", 1), 1);
  ASSERT_EQ(test.number("beta", 1), 1);
  const bool is_ours = test.integer("transB", 0) == 1;
  const bool bias = test.inputs().size() > 2;
  std::vector<std::vector<float>> parameters = {is_ours ? b.values : transposed(b)};
  if (bias) {
    parameters.push_back(test.inputs()[2].values);
  }
  expect_layer(test, Dense({.units = b.shape[is_ours ? 0 : 1], .bias = bias}), parameters);
}

void check_softmax(const NodeCase& test) {
  const std::int64_t axis = test.integer("axis", -1);
  ASSERT_TRUE(axis == -1 || axis == test.inputs()[0].shape.rank() - 1);
  expect_layer(test, Softmax());
}

void check_concat(const NodeCase& test) {
  const std::int64_t axis = test.integer("axis", 0);
  const int rank = test.inputs()[0].shape.rank();
  expect_layer(test, Concat(static_cast<int>(axis < 0 ? axis + rank : axis)), {}, test.inputs().size());
}

void check_reshape(const NodeCase& test) { expect_layer(test, Reshape(test.outputs()[0].shape.sample().dims())); }

void check_dropout(const NodeCase& test) {
  // With training and a ratio, ONNX asks for the zeros of another generator; without, for nothing to happen.
  expect_layer(test, Dropout({.rate = 0.5F}));
}

void check_gather(const NodeCase& test) {
  const NodeTensor& table = test.inputs()[0];
  const NodeTensor& indices = test.inputs()[1];
  LayerRun run(Embedding({.vocabulary = table.shape[0], .dimension = table.shape[1]}),
               {{indices.shape, ValueKind::indices}}, {.purpose = Purpose::inference});
  run.indices.assign(indices.values.begin(), indices.values.end());
  run.parameters[0] = table.values;
  run.forward();
  expect_values(run.output, test.outputs()[0].values, "rows");
}

void check_cross_entropy(const NodeCase& test) {
  const NodeTensor& scores = test.inputs()[0];
  const std::vector<std::int32_t> classes(test.inputs()[1].values.begin(), test.inputs()[1].values.end());
  ASSERT_EQ(test.inputs().size(), 2U) << "weights of classes are not ours";
  const SoftmaxCrossEntropy loss;
  const std::int64_t columns = scores.shape[1];
  std::vector<float> losses;
  float sum = 0;
  for (std::size_t r = 0; r < classes.size(); ++r) {
    const Targets target{.classes = std::span(classes).subspan(r, 1), .values = {}};
    losses.push_back(static_cast<float>(
        loss.evaluate(scores.values.data() + static_cast<std::int64_t>(r) * columns, 1, columns, target, nullptr)
            .loss));
    sum += losses.back();
  }
  const std::string reduction = test.text("reduction", "mean");
  if (reduction != "none") {
    losses = {reduction == "sum" ? sum : sum / static_cast<float>(classes.size())};
  }
  expect_values(losses, test.outputs()[0].values, "loss");
}

using Check = std::function<void(const NodeCase&)>;

Check check_of(const std::string& op) {
  const auto activation = [](Activation::Kind kind) {
    return [kind](const NodeCase& test) { expect_layer(test, Activation(kind)); };
  };
  const std::map<std::string, Check> checks = {
      {"Add", [](const NodeCase& test) { expect_layer(test, Add(), {}, 2); }},
      {"AveragePool", check_pool},
      {"BatchNormalization", check_batch_norm},
      {"Concat", check_concat},
      {"Conv", check_conv},
      {"Dropout", check_dropout},
      {"Flatten", check_reshape},
      {"Gather", check_gather},
      {"Gemm", check_product},
      {"GlobalAveragePool", check_global_pool},
      {"GlobalMaxPool", check_global_pool},
      {"LRN", check_lrn},
      {"LayerNormalization", check_layer_norm},
      {"MatMul", check_product},
      {"MaxPool", check_pool},
      {"Relu", [](const NodeCase& test) { expect_layer(test, Relu()); }},
      {"Reshape", check_reshape},
      {"Sigmoid", activation(Activation::Kind::sigmoid)},
      {"Softmax", check_softmax},
      {"SoftmaxCrossEntropyLoss", check_cross_entropy},
      {"Tanh", activation(Activation::Kind::tanh)},
  };
  return checks.at(op);
}

class OnnxOperator : public testing::TestWithParam<std::string> {
 protected:
  static void TearDownTestSuite() { std::cout << compared_ << " of ONNX's operator tests compared\n"; }
  inline static int compared_ = 0;
};

TEST_P(OnnxOperator, Agrees) {
  // Those that PyTorch exported have capitals.
  const bool exported = std::isupper(static_cast<unsigned char>(GetParam()[0])) != 0;
  const NodeCase test = exported ? NodeCase::exported("test_" + GetParam()) : NodeCase::named("test_" + GetParam());
  check_of(test.op())(test);
  ++compared_;
}

INSTANTIATE_TEST_SUITE_P(
    Node, OnnxOperator,
    testing::Values("add", "averagepool_2d_default", "averagepool_2d_pads", "averagepool_2d_pads_count_include_pad",
                    "averagepool_2d_precomputed_pads", "averagepool_2d_precomputed_pads_count_include_pad",
                    "averagepool_2d_precomputed_same_upper", "averagepool_2d_precomputed_strides",
                    "averagepool_2d_strides", "basic_conv_with_padding", "basic_conv_without_padding",
                    "batchnorm_epsilon", "batchnorm_epsilon_training_mode", "batchnorm_example",
                    "batchnorm_example_training_mode", "concat_2d_axis_1", "concat_2d_axis_negative_1",
                    "concat_3d_axis_1", "concat_3d_axis_2", "concat_3d_axis_negative_1", "concat_3d_axis_negative_2",
                    "conv_with_autopad_same", "conv_with_strides_no_padding", "conv_with_strides_padding"),
    [](const auto& test) { return test.param; });

INSTANTIATE_TEST_SUITE_P(
    MoreNodes, OnnxOperator,
    testing::Values("dropout_default", "dropout_default_mask", "dropout_default_mask_ratio", "dropout_default_old",
                    "dropout_default_ratio", "dropout_random_old", "flatten_axis1", "flatten_default_axis",
                    "flatten_negative_axis3", "gemm_default_no_bias", "gemm_default_vector_bias",
                    "gemm_default_zero_bias", "gemm_transposeB", "globalaveragepool", "globalaveragepool_precomputed",
                    "globalmaxpool", "globalmaxpool_precomputed", "lrn", "lrn_default", "matmul_2d",
                    "maxpool_2d_default", "maxpool_2d_pads", "maxpool_2d_precomputed_pads",
                    "maxpool_2d_precomputed_same_upper", "maxpool_2d_precomputed_strides", "maxpool_2d_strides", "relu",
                    "reshape_extended_dims", "reshape_negative_dim", "reshape_reduced_dims",
                    "reshape_reordered_last_dims", "reshape_zero_and_negative_dim", "reshape_zero_dim", "sce_mean",
                    "sce_mean_log_prob", "sce_none", "sce_none_log_prob", "sce_sum", "sce_sum_log_prob", "sigmoid",
                    "sigmoid_example", "softmax_axis_2", "softmax_default_axis", "softmax_example",
                    "softmax_large_number", "softmax_negative_axis", "tanh", "tanh_example"),
    [](const auto& test) { return test.param; });

INSTANTIATE_TEST_SUITE_P(LayerNormalization, OnnxOperator,
                         testing::Values("layer_normalization_2d_axis1", "layer_normalization_2d_axis_negative_1",
                                         "layer_normalization_3d_axis1_epsilon", "layer_normalization_3d_axis2_epsilon",
                                         "layer_normalization_3d_axis_negative_1_epsilon",
                                         "layer_normalization_3d_axis_negative_2_epsilon",
                                         "layer_normalization_4d_axis1", "layer_normalization_4d_axis2",
                                         "layer_normalization_4d_axis3", "layer_normalization_4d_axis_negative_1",
                                         "layer_normalization_4d_axis_negative_2",
                                         "layer_normalization_4d_axis_negative_3", "layer_normalization_default_axis"),
                         [](const auto& test) { return test.param; });

INSTANTIATE_TEST_SUITE_P(ExportedByPyTorch, OnnxOperator,
                         testing::Values("AvgPool2d", "AvgPool2d_stride", "BatchNorm2d_eval",
                                         "BatchNorm2d_momentum_eval", "Conv2d", "Conv2d_depthwise",
                                         "Conv2d_depthwise_padded", "Conv2d_depthwise_strided",
                                         "Conv2d_depthwise_with_multiplier", "Conv2d_dilated", "Conv2d_groups",
                                         "Conv2d_groups_thnn", "Conv2d_no_bias", "Conv2d_padding", "Conv2d_strided",
                                         "Embedding", "Linear", "MaxPool2d", "ReLU", "Sigmoid", "Tanh"),
                         [](const auto& test) { return test.param; });

TEST(OnnxOperators, MissingTestDataIsAnErrorAndNoPass) {
  EXPECT_THROW(NodeCase::exported("test_no_such_node"), FileError);
}

}  // namespace
}  // namespace distbelief
