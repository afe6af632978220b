#include <fmt/format.h>

#include "graph/layers/add.h"
#include "graph/layers/batch_norm.h"
#include "graph/layers/pooling.h"
#include "models/families/families.h"

// Residual networks: He et al., "Deep Residual Learning for Image Recognition", 2016. A stage is a row of blocks; the
// first block of stages 2 to 4 halves the image. As usual today ("v1.5") a bottleneck block halves it in its 3x3
// convolution, not in the first 1x1. Names are those of torchvision, so that its weights can be found by name.

namespace distbelief {
namespace {

class ResnetBuilder {
 public:
  ResnetBuilder(const ModelOptions& options, const SampleSpec& data, bool bottleneck)
      : network_(options.model(), data), bottleneck_(bottleneck), zero_init_(options.flag("zero_init")) {}

  void stem(bool small_images) {
    if (small_images) {
      convolution("conv1", "bn1", 64, 3, 1);
      network_.add("relu", make_relu());
      return;
    }
    convolution("conv1", "bn1", 64, 7, 2);
    network_.add("relu", make_relu());
    network_.add("maxpool", make_max_pool(3, 2, 1));
  }

  void stage(int number, int blocks, std::int64_t width, std::int64_t stride) {
    for (int i = 0; i < blocks; ++i) {
      block(fmt::format("layer{}.{}", number, i), width, i == 0 ? stride : 1);
    }
  }

  Graph finish(const SampleSpec& data) && {
    network_.add("avgpool", std::make_shared<Pooling>(
                                PoolingOptions{.kind = PoolingOptions::Kind::average, .window = {}, .global = true}));
    network_.flatten();
    network_.add("fc", make_output(output_count(data)));
    return std::move(network_).finish(usual_loss(data));
  }

 private:
  void convolution(const std::string& name, const std::string& norm, std::int64_t filters, std::int64_t kernel,
                   std::int64_t stride, bool zero_scale = false) {
    network_.add(name, make_conv(filters, kernel, stride, kernel / 2, false));
    network_.add(norm, std::make_shared<BatchNorm>(BatchNormOptions{.zero_scale = zero_scale}));
  }

  void block(const std::string& name, std::int64_t width, std::int64_t stride) {
    const NodeId source = network_.last();
    const std::int64_t filters = bottleneck_ ? 4 * width : width;
    if (bottleneck_) {
      convolution(name + ".conv1", name + ".bn1", width, 1, 1);
      network_.add(name + ".relu1", make_relu());
      convolution(name + ".conv2", name + ".bn2", width, 3, stride);
      network_.add(name + ".relu2", make_relu());
      convolution(name + ".conv3", name + ".bn3", filters, 1, 1, zero_init_);
    } else {
      convolution(name + ".conv1", name + ".bn1", width, 3, stride);
      network_.add(name + ".relu1", make_relu());
      convolution(name + ".conv2", name + ".bn2", filters, 3, 1, zero_init_);
    }
    const NodeId main = network_.last();
    NodeId shortcut = source;
    if (stride != 1 || network_.value(source).shape[1] != filters) {
      network_.add(name + ".downsample.0", make_conv(filters, 1, stride, 0, false), {source});
      shortcut = network_.add(name + ".downsample.1", std::make_shared<BatchNorm>());
    }
    network_.add(name + ".add", std::make_shared<Add>(), {main, shortcut});
    network_.add(name + ".relu", make_relu());
  }

  Network network_;
  bool bottleneck_;
  bool zero_init_;
};

Graph build_resnet(const ModelOptions& options, const SampleSpec& data, bool bottleneck,
                   const std::vector<int>& blocks) {
  expect_images(options, data);
  ResnetBuilder builder(options, data, bottleneck);
  builder.stem(options.word("stem", {"large", "small"}) == "small");
  std::int64_t width = 64;
  for (int i = 0; i < 4; ++i, width *= 2) {
    builder.stage(i + 1, blocks[static_cast<std::size_t>(i)], width, i == 0 ? 1 : 2);
  }
  return std::move(builder).finish(data);
}

Graph build_resnet18(const ModelOptions& options, const SampleSpec& data) {
  return build_resnet(options, data, false, {2, 2, 2, 2});
}

Graph build_resnet50(const ModelOptions& options, const SampleSpec& data) {
  return build_resnet(options, data, true, {3, 4, 6, 3});
}

}  // namespace

std::vector<ModelFamily> resnet_family() {
  const std::vector<ModelOption> options = {
      {"stem", "large", "large: 7x7, stride 2, max-pooling; small: 3x3, for images of about 32x32"},
      {"zero_init", "false", "true: each block begins as the identity"}};
  const SampleSpec imagenet = {.input = {3, 224, 224}, .classes = 1000};
  return {{{.name = "resnet18",
            .description = "residual network of 18 layers",
            .default_data = imagenet,
            .parameters = 11689512,
            .options = options},
           build_resnet18},
          {{.name = "resnet50",
            .description = "residual network of 50 layers, with bottlenecks",
            .default_data = imagenet,
            .parameters = 25557032,
            .options = options},
           build_resnet50}};
}

}  // namespace distbelief
