#include "graph/layer.h"

#include "base/check.h"
#include "base/error.h"

namespace distbelief {

std::vector<ParameterSpec> Layer::parameters(ValueSpecs /*inputs*/) const { return {}; }

std::int64_t Layer::flops(ValueSpecs inputs) const { return output(inputs).shape.elements(); }

LayerPtr Layer::fused_with(const Layer& /*next*/) const { return nullptr; }

std::vector<Cut> Layer::cuts(ValueSpecs /*inputs*/) const { return {}; }

std::int64_t Layer::cut_places(Cut cut, ValueSpecs inputs) const {
  return cut == Cut::outputs  ? output(inputs).shape[1]
         : cut == Cut::region ? output(inputs).shape[2]
                              : inputs[0].shape[1];
}

LayerPart Layer::part(Cut /*cut*/, ValueSpecs inputs, const Slice& /*slice*/) const {
  check(parameters(inputs).empty(), "a layer with parameters says itself what its parts are");
  return {};
}

RowsNeeded Layer::rows_needed(ValueSpecs /*inputs*/, const Slice& rows) const { return {rows.begin, rows.end}; }

std::vector<Cut> cuts_of_elements(const Shape& value) {
  return value.rank() == 4   ? std::vector{Cut::channels, Cut::region}
         : value.rank() == 2 ? std::vector{Cut::channels}
                             : std::vector<Cut>{};
}

const char* name_of(Cut cut) {
  constexpr const char* kNames[] = {"whole", "by outputs", "by inputs", "by channels", "by region"};
  return kNames[static_cast<int>(cut)];
}

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
