#pragma once

#include <string>
#include <vector>

#include "graph/layer.h"
#include "graph/loss.h"

namespace distbelief {

/// Place of a node in Graph::nodes().
using NodeId = int;

struct Node {
  std::string name;
  LayerPtr layer;  ///< null: an input of the graph
  std::vector<NodeId> inputs;
  ValueSpec output;  ///< for a batch of 1
};

/// An acyclic network of layers with one input, one output and a loss: what a user describes and a planner cuts. Nodes
/// are in an order in which they can run, since a node can only name nodes that are there already.
class Graph {
 public:
  explicit Graph(std::string name) : name_(std::move(name)) {}

  /// The input, first of all. `sample` is one sample's shape, without batch.
  NodeId add_input(const Shape& sample, ValueKind kind = ValueKind::dense);
  /// Throws ShapeError or InputError that names the layer: shapes that do not fit, a name twice.
  NodeId add(std::string name, LayerPtr layer, std::vector<NodeId> inputs);
  /// The last node added is the output. The loss must fit it. Throws InputError for a layer that nothing uses.
  void finish(LossPtr loss);
  /// The same for one process's part of a network: what leaves it need not be used here, and it may have no loss.
  void finish_part(LossPtr loss) { loss_ = std::move(loss); }

  const std::string& name() const { return name_; }
  const std::vector<Node>& nodes() const { return nodes_; }
  const Node& node(NodeId id) const { return nodes_.at(static_cast<std::size_t>(id)); }
  NodeId output() const { return static_cast<NodeId>(nodes_.size()) - 1; }
  const Loss& loss() const { return *loss_; }
  bool has_loss() const { return loss_ != nullptr; }
  const LossPtr& shared_loss() const { return loss_; }
  std::vector<ValueSpec> input_specs(NodeId id, std::int64_t batch = 1) const;
  /// Floating-point operations of one sample's forward pass.
  std::int64_t flops() const;

  /// The same network with neighbours merged where Layer::fused_with() offers it. Names, and so parameters, stay.
  Graph fused() const;

 private:
  std::string name_;
  std::vector<Node> nodes_;
  LossPtr loss_;
};

}  // namespace distbelief
