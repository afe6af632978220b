#include "base/error.h"
#include "models/families/families.h"

namespace distbelief {
namespace {

/// LeCun et al. 1998, in the size and with the ReLU that is usual today.
Graph build_lenet(const ModelOptions& options, const SampleSpec& data) {
  expect_images(options, data);
  if (data.input[1] < 4 || data.input[2] < 4) {
    throw InputError(
        fmt::format("model lenet needs images of at least 4x4; this data has images of {}", data.input.text()));
  }
  Network network(options.model(), data);
  network.add("conv1", make_conv(32, 5, 1, 2));
  network.add("relu1", make_relu());
  network.add("pool1", make_max_pool(2, 2));
  network.add("conv2", make_conv(64, 5, 1, 2));
  network.add("relu2", make_relu());
  network.add("pool2", make_max_pool(2, 2));
  network.flatten();
  network.add("hidden", make_dense(512));
  network.add("relu3", make_relu());
  if (const double dropout = options.number("dropout", 0, 0.99); dropout > 0) {
    network.add("dropout", make_dropout("dropout", dropout));
  }
  network.add("output", make_output(output_count(data)));
  return std::move(network).finish(usual_loss(data));
}

}  // namespace

std::vector<ModelFamily> lenet_family() {
  return {{{.name = "lenet",
            .description = "two 5x5 convolutions with max-pooling, two dense layers",
            .default_data = {.input = {1, 28, 28}, .classes = 10},
            .parameters = 1663370,
            .options = {{"dropout", "0", "share of hidden units that training leaves out"}}},
           build_lenet}};
}

}  // namespace distbelief
