#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "models/model_options.h"
#include "models/network.h"
#include "models/zoo.h"

namespace distbelief {

/// A model of the zoo with the function that builds it; `data` has an input, and targets or classes.
struct ModelFamily {
  ModelInfo info;
  Graph (*build)(const ModelOptions& options, const SampleSpec& data);
};

std::vector<ModelFamily> linear_family();
std::vector<ModelFamily> mlp_family();
std::vector<ModelFamily> lenet_family();
std::vector<ModelFamily> resnet_family();
std::vector<ModelFamily> speech_family();
std::vector<ModelFamily> local_image_family();

/// Scores that the output has: one for each class, or one for each target.
std::int64_t output_count(const SampleSpec& data);
/// Throws InputError that says what the model needs and what the data is.
void expect_images(const ModelOptions& options, const SampleSpec& data);
void expect_classes(const ModelOptions& options, const SampleSpec& data);
/// Dense floats, of any shape.
void expect_floats(const ModelOptions& options, const SampleSpec& data);
/// Dense floats or sparse rows.
void expect_numbers(const ModelOptions& options, const SampleSpec& data);

/// The loss that fits the data: softmax cross-entropy for classes, mean squared error for targets.
LossPtr usual_loss(const SampleSpec& data);

LayerPtr make_dense(std::int64_t units);
/// The last layer: it starts with weights so small that first predictions are nearly even.
LayerPtr make_output(std::int64_t units);
LayerPtr make_conv(std::int64_t filters, std::int64_t kernel, std::int64_t stride, std::int64_t padding,
                   bool bias = true);
LayerPtr make_max_pool(std::int64_t kernel, std::int64_t stride, std::int64_t padding = 0);
LayerPtr make_relu();
/// Its random numbers follow its name.
LayerPtr make_dropout(const std::string& name, double rate);

}  // namespace distbelief
