#include "graph/graph.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"

namespace distbelief {

NodeId Graph::add_input(const Shape& sample, ValueKind kind) {
  check(nodes_.empty(), "the input comes first");
  std::vector<std::int64_t> dims = {1};
  dims.insert(dims.end(), sample.dims().begin(), sample.dims().end());
  nodes_.push_back({"input", nullptr, {}, {Shape(std::move(dims)), kind}});
  return 0;
}

NodeId Graph::add(std::string name, LayerPtr layer, std::vector<NodeId> inputs) {
  for (const Node& node : nodes_) {
    if (node.name == name) {
      throw InputError(fmt::format("model {}: two layers are called '{}'; names must differ", name_, name));
    }
  }
  std::vector<ValueSpec> specs;
  for (const NodeId input : inputs) {
    check(input >= 0 && input < static_cast<NodeId>(nodes_.size()), "an input that is not there yet");
    specs.push_back(node(input).output);
  }
  try {
    ValueSpec output = layer->output(specs);
    nodes_.push_back({std::move(name), std::move(layer), std::move(inputs), std::move(output)});
  } catch (const ShapeError& error) {
    throw ShapeError(fmt::format("model {}, layer '{}': {}", name_, name, error.what()));
  }
  return static_cast<NodeId>(nodes_.size()) - 1;
}

void Graph::finish(LossPtr loss) {
  std::vector<bool> used(nodes_.size(), false);
  used.back() = true;
  for (const Node& node : nodes_) {
    for (const NodeId input : node.inputs) {
      used[static_cast<std::size_t>(input)] = true;
    }
  }
  const auto unused = std::find(used.begin(), used.end(), false);
  if (unused != used.end()) {
    throw InputError(fmt::format("model {}: nothing uses layer '{}', and it is not the last one", name_,
                                 nodes_[static_cast<std::size_t>(unused - used.begin())].name));
  }
  loss_ = std::move(loss);
}

std::vector<ValueSpec> Graph::input_specs(NodeId id, std::int64_t batch) const {
  std::vector<ValueSpec> specs;
  for (const NodeId input : node(id).inputs) {
    const ValueSpec& spec = node(input).output;
    specs.push_back({spec.shape.with_batch(batch), spec.kind});
  }
  return specs;
}

std::int64_t Graph::flops() const {
  std::int64_t sum = 0;
  for (NodeId id = 0; id <= output(); ++id) {
    if (node(id).layer != nullptr) {
      sum += node(id).layer->flops(input_specs(id));
    }
  }
  return sum;
}

Graph Graph::fused() const {
  std::vector<int> readers(nodes_.size(), 0);
  for (const Node& node : nodes_) {
    for (const NodeId input : node.inputs) {
      readers[static_cast<std::size_t>(input)]++;
    }
  }
  // From the end: a ReLU between a convolution and a max-pooling is cheaper as part of the pooling.
  std::vector<Node> nodes = nodes_;
  std::vector<NodeId> merged_into(nodes.size(), -1);
  for (std::size_t i = nodes.size(); i-- > 1;) {
    if (nodes[i].inputs.size() != 1) {
      continue;
    }
    const auto before = static_cast<std::size_t>(nodes[i].inputs[0]);
    if (readers[before] != 1 || nodes[before].layer == nullptr) {
      continue;
    }
    if (LayerPtr merged = nodes[before].layer->fused_with(*nodes[i].layer)) {
      nodes[before].layer = std::move(merged);
      nodes[before].output = nodes[i].output;
      readers[before] = readers[i];
      merged_into[i] = static_cast<NodeId>(before);
    }
  }
  Graph result(name_);
  std::vector<NodeId> place(nodes.size());  // where each of our values is found in the result
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (merged_into[i] >= 0) {
      place[i] = place[static_cast<std::size_t>(merged_into[i])];
      continue;
    }
    for (NodeId& input : nodes[i].inputs) {
      input = place[static_cast<std::size_t>(input)];
    }
    place[i] = static_cast<NodeId>(result.nodes_.size());
    result.nodes_.push_back(std::move(nodes[i]));
  }
  result.loss_ = loss_;
  return result;
}

}  // namespace distbelief
