#include <fmt/format.h>

#include "graph/layers/activation.h"
#include "models/families/families.h"

namespace distbelief {
namespace {

/// The acoustic model of Dean et al., "Large Scale Distributed Deep Networks", 2012: 11 frames of 40 energies, the odds
/// of 8192 states.
Graph build_speech(const ModelOptions& options, const SampleSpec& data) {
  expect_classes(options, data);
  expect_floats(options, data);
  Network network(options.model(), data);
  network.flatten();
  int number = 0;
  for (const std::int64_t units : options.integers("hidden")) {
    ++number;
    network.add(fmt::format("hidden{}", number), make_output(units));
    network.add(fmt::format("sigmoid{}", number), std::make_shared<Activation>(Activation::Kind::sigmoid));
  }
  network.add("output", make_output(data.classes));
  return std::move(network).finish(usual_loss(data));
}

}  // namespace

std::vector<ModelFamily> speech_family() {
  return {{{.name = "speech",
            .description = "DistBelief's acoustic model, 440-2560x4-8192 with sigmoids",
            .default_data = {.input = {440}, .classes = 8192},
            .parameters = 41777152,
            .options = {{"hidden", "2560,2560,2560,2560", "units of each hidden layer"}}},
           build_speech}};
}

}  // namespace distbelief
