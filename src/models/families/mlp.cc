#include <fmt/format.h>

#include "models/families/families.h"

namespace distbelief {
namespace {

Graph build_mlp(const ModelOptions& options, const SampleSpec& data) {
  expect_floats(options, data);
  Network network(options.model(), data);
  network.flatten();
  int number = 0;
  for (const std::int64_t units : options.integers("hidden")) {
    ++number;
    network.add(fmt::format("hidden{}", number), make_dense(units));
    network.add(fmt::format("relu{}", number), make_relu());
  }
  network.add("output", make_output(output_count(data)));
  return std::move(network).finish(usual_loss(data));
}

}  // namespace

std::vector<ModelFamily> mlp_family() {
  return {{{.name = "mlp",
            .description = "dense layers with ReLU, 784-512-512-10 for small images",
            .default_data = {.input = {1, 28, 28}, .classes = 10},
            .parameters = 669706,
            .options = {{"hidden", "512,512", "units of each hidden layer"}}},
           build_mlp}};
}

}  // namespace distbelief
