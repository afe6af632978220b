#include "models/network.h"

#include "base/error.h"
#include "graph/layers/reshape.h"

namespace distbelief {
namespace {

/// A product that may be too large for 64 bits is compared in doubles.
double product(std::int64_t a, std::int64_t b) { return static_cast<double>(a) * static_cast<double>(b); }

constexpr double kMaxOperations = 0x1p60;

}  // namespace

Network::Network(std::string name, const SampleSpec& data) : data_(data), graph_(std::move(name)) {
  const ValueKind kind = data.sparse ? ValueKind::sparse : data.indices ? ValueKind::indices : ValueKind::dense;
  graph_.add_input(data.sparse ? Shape{data.input.elements()} : data.input, kind);
}

NodeId Network::add(std::string name, LayerPtr layer, std::vector<NodeId> inputs) {
  const NodeId id = graph_.add(std::move(name), std::move(layer), std::move(inputs));
  try {
    check_size(id);
  } catch (const ShapeError& error) {
    throw ShapeError(fmt::format("model {}, layer '{}': {}", graph_.name(), graph_.node(id).name, error.what()));
  }
  return id;
}

void Network::check_size(NodeId id) {
  const Node& node = graph_.node(id);
  const std::int64_t elements = node.output.shape.elements();
  if (elements > kMaxValueElements) {
    throw ShapeError(fmt::format("an output of {} has {} elements a sample, at most {} are possible",
                                 node.output.shape.sample().text(), elements, kMaxValueElements));
  }
  for (const ParameterSpec& parameter : node.layer->parameters(graph_.input_specs(id))) {
    const std::int64_t count = parameter.shape.elements();
    // The product bounds what flops() below counts, which must not overflow.
    if (count > kMaxModelParameters - parameters_ || product(count, elements) > kMaxOperations) {
      throw ShapeError(fmt::format("its {} of {} is too large for any machine; at most {} parameters are possible",
                                   parameter.name, parameter.shape.text(), kMaxModelParameters));
    }
    parameters_ += count;
  }
  flops_ += static_cast<double>(node.layer->flops(graph_.input_specs(id)));
  if (flops_ > kMaxOperations) {
    throw ShapeError(fmt::format("the model has more than {:g} operations a sample", kMaxOperations));
  }
}

void Network::flatten() {
  if (value(last()).shape.rank() > 2) {
    add("flatten", Reshape::flatten());
  }
}

Graph Network::finish(LossPtr loss) && {
  try {
    loss->check_fit(value(last()).shape, data_.classes, data_.targets);
  } catch (const ShapeError& error) {
    throw ShapeError(fmt::format("model {}: {}", graph_.name(), error.what()));
  }
  graph_.finish(std::move(loss));
  return std::move(graph_);
}

std::string describe(const SampleSpec& data) {
  std::string input;
  if (data.sparse) {
    input = fmt::format("sparse rows of {} columns", data.input.elements());
  } else if (data.indices) {
    input = fmt::format("integers {}", data.input.text());
  } else {
    input = fmt::format("{} {}", data.input.rank() == 3 ? "images" : "floats", data.input.text());
  }
  const std::int64_t count = data.classes > 0 ? data.classes : data.targets;
  return fmt::format("{} with {} {}{}", input, count, data.classes > 0 ? "class" : "target",
                     count == 1 ? "" : (data.classes > 0 ? "es" : "s"));
}

}  // namespace distbelief
