#include "models/families/families.h"

#include "base/error.h"
#include "graph/layers/conv2d.h"
#include "graph/layers/dense.h"
#include "graph/layers/dropout.h"
#include "graph/layers/pooling.h"
#include "graph/layers/relu.h"
#include "graph/losses/loss_factory.h"
#include "models/name_hash.h"

namespace distbelief {
namespace {

[[noreturn]] void refuse(const ModelOptions& options, const SampleSpec& data, std::string_view needs) {
  throw InputError(fmt::format("model {} needs {}; this data has {}", options.model(), needs, describe(data)));
}

}  // namespace

std::int64_t output_count(const SampleSpec& data) { return data.classes > 0 ? data.classes : data.targets; }

void expect_images(const ModelOptions& options, const SampleSpec& data) {
  if (data.sparse || data.indices || data.input.rank() != 3) {
    refuse(options, data, "images (channels x height x width)");
  }
}

void expect_classes(const ModelOptions& options, const SampleSpec& data) {
  if (data.classes < 1) {
    refuse(options, data, "data with classes");
  }
}

void expect_floats(const ModelOptions& options, const SampleSpec& data) {
  if (data.sparse || data.indices) {
    refuse(options, data, "dense floats, of any shape");
  }
}

void expect_numbers(const ModelOptions& options, const SampleSpec& data) {
  if (data.indices) {
    refuse(options, data, "floats or sparse rows");
  }
}

LossPtr usual_loss(const SampleSpec& data) {
  return make_loss(data.classes > 0 ? "softmax_cross_entropy" : "mean_squared_error");
}

LayerPtr make_dense(std::int64_t units) { return std::make_shared<Dense>(DenseOptions{.units = units}); }

LayerPtr make_output(std::int64_t units) {
  return std::make_shared<Dense>(DenseOptions{.units = units, .init = DenseOptions::Init::small});
}

LayerPtr make_conv(std::int64_t filters, std::int64_t kernel, std::int64_t stride, std::int64_t padding, bool bias) {
  return std::make_shared<Conv2d>(
      Conv2dOptions{.filters = filters,
                    .window = {.kernel = {kernel, kernel}, .stride = {stride, stride}, .padding = {padding, padding}},
                    .bias = bias});
}

LayerPtr make_max_pool(std::int64_t kernel, std::int64_t stride, std::int64_t padding) {
  return std::make_shared<Pooling>(PoolingOptions{
      .window = {.kernel = {kernel, kernel}, .stride = {stride, stride}, .padding = {padding, padding}}});
}

LayerPtr make_relu() { return std::make_shared<Relu>(); }

LayerPtr make_dropout(const std::string& name, double rate) {
  return std::make_shared<Dropout>(DropoutOptions{.rate = static_cast<float>(rate), .salt = name_hash(name)});
}

}  // namespace distbelief
