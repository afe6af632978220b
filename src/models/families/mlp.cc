#include <fmt/format.h>

#include "models/families/families.h"

namespace distbelief {
namespace {

Graph build_mlp(const ModelOptions& options, const SampleSpec& data) {
  expect_floats(options, data);
  Network network(options.model(), data);
  network.flatten();
  const double dropout = options.number("dropout", 0, 0.99);
  int number = 0;
  for (const std::int64_t units : options.integers("hidden")) {
    ++number;
    network.add(fmt::format("hidden{}", number), make_dense(units));
    network.add(fmt::format("relu{}", number), make_relu());
    if (dropout > 0) {
      const std::string name = fmt::format("dropout{}", number);
      network.add(name, make_dropout(name, dropout));
    }
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
            .options = {{"hidden", "512,512", "units of each hidden layer"},
                        {"dropout", "0", "share of hidden units that training leaves out"}}},
           build_mlp}};
}

}  // namespace distbelief
