#include <fmt/format.h>

#include "graph/layers/l2_pool.h"
#include "graph/layers/local_contrast_norm.h"
#include "graph/layers/local_response_norm.h"
#include "graph/layers/locally_connected2d.h"
#include "graph/losses/loss_factory.h"
#include "models/families/families.h"
#include "models/model_text.h"

// The image network of Dean et al., "Large Scale Distributed Deep Networks", 2012: stages of filters that are not
// shared between places, L2 pooling and local normalisation. Few operations for its many parameters, and each place
// needs only its neighbourhood: the network to cut over many machines. The default is small; kernel=10 and
// parameters=1.7e9 give the paper's largest.

namespace distbelief {
namespace {

LayerPtr make_normalization(const std::string& kind) {
  if (kind == "contrast") {
    return std::make_shared<LocalContrastNorm>();
  }
  return std::make_shared<LocalResponseNorm>();
}

Graph build_with(const ModelOptions& options, const SampleSpec& data, std::int64_t filters) {
  const std::int64_t kernel = options.integer("kernel");
  const std::int64_t stages = options.integer("stages");
  const std::string normalization = options.word("normalization", {"response", "contrast"});
  Network network(options.model(), data);
  for (std::int64_t stage = 1; stage <= stages; ++stage) {
    network.add(fmt::format("local{}", stage),
                std::make_shared<LocallyConnected2d>(LocallyConnected2dOptions{
                    .filters = filters,
                    .window = {.kernel = {kernel, kernel}, .stride = {1, 1}, .padding = {0, 0}, .dilation = {1, 1}}}));
    const Shape& image = network.value(network.last()).shape;
    if (image[2] > 1 && image[3] > 1) {
      network.add(fmt::format("pool{}", stage), std::make_shared<L2Pool>(Window{.kernel = {2, 2}, .stride = {2, 2}}));
    }
    network.add(fmt::format("norm{}", stage), make_normalization(normalization));
  }
  network.flatten();
  network.add("output", make_output(data.classes));
  return std::move(network).finish(make_loss(options.word("loss", {"softmax_cross_entropy", "sigmoid_cross_entropy"})));
}

/// The fewest filters that give at least so many parameters.
std::int64_t filters_for(const ModelOptions& options, const SampleSpec& data, double parameters) {
  const auto enough = [&](std::int64_t filters) {
    return static_cast<double>(summarize(build_with(options, data, filters)).parameters) >= parameters;
  };
  std::int64_t high = 1;
  while (!enough(high)) {
    high *= 2;
  }
  std::int64_t low = high / 2;  // not enough, or 0
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (enough(middle) ? high : low) = middle;
  }
  return high;
}

Graph build_local_image(const ModelOptions& options, const SampleSpec& data) {
  expect_classes(options, data);
  expect_images(options, data);
  const double parameters = options.number("parameters", 0, 1e12);
  return build_with(options, data,
                    parameters > 0 ? filters_for(options, data, parameters) : options.integer("filters"));
}

}  // namespace

std::vector<ModelFamily> local_image_family() {
  return {
      {{.name = "local-image",
        .description = "DistBelief's image network: filters that are not shared, L2 pooling, normalisation",
        .default_data = {.input = {3, 32, 32}, .classes = 10},
        .parameters = 639170,
        .options = {{"filters", "8", "channels of each stage"},
                    {"kernel", "5", "height and width of the filters"},
                    {"stages", "3", "how many stages"},
                    {"normalization", "response", "response (across channels) or contrast (across space too)"},
                    {"loss", "softmax_cross_entropy", "or sigmoid_cross_entropy: each class against all others"},
                    {"parameters", "0", "if not 0: at least so many, by the number of filters; 1.7e9 is possible"}}},
       build_local_image}};
}

}  // namespace distbelief
