#include "graph/layer.h"

#include "base/error.h"

namespace distbelief {

std::vector<ParameterSpec> Layer::parameters(ValueSpecs /*inputs*/) const { return {}; }

std::int64_t Layer::flops(ValueSpecs inputs) const { return output(inputs).shape.elements(); }

LayerPtr Layer::fused_with(const Layer& /*next*/) const { return nullptr; }

void expect_dense_inputs(const Layer& layer, ValueSpecs inputs, std::size_t count) {
  if (inputs.size() != count) {
    throw ShapeError(
        fmt::format("{} takes {} input{}, got {}", layer.type(), count, count == 1 ? "" : "s", inputs.size()));
  }
  for (const ValueSpec& input : inputs) {
    if (input.kind != ValueKind::dense) {
      throw ShapeError(fmt::format("{} takes dense floats, got {} of shape {}", layer.type(),
                                   input.kind == ValueKind::sparse ? "sparse rows" : "integers", input.shape.text()));
    }
  }
}

const Shape& expect_image(const Layer& layer, ValueSpecs inputs) {
  expect_dense_inputs(layer, inputs, 1);
  if (inputs[0].shape.rank() != 4) {
    throw ShapeError(fmt::format("{} takes images (batch x channels x height x width), got {}", layer.type(),
                                 inputs[0].shape.text()));
  }
  return inputs[0].shape;
}

}  // namespace distbelief
