#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"
#include "tensor/batch.h"

namespace distbelief {

/// Elements of one sample's value, and parameters of a model, that are beyond any machine: a model that asks for more
/// is a mistake, and is refused before anything is allocated.
constexpr std::int64_t kMaxValueElements = std::int64_t{1} << 36;
constexpr std::int64_t kMaxModelParameters = std::int64_t{1} << 42;

/// Builds a graph layer after layer; a layer's input is the one before unless told otherwise.
class Network {
 public:
  Network(std::string name, const SampleSpec& data);

  /// Throws ShapeError or InputError that names model and layer, also for sizes beyond the limits above.
  NodeId add(std::string name, LayerPtr layer) { return add(std::move(name), std::move(layer), {last()}); }
  NodeId add(std::string name, LayerPtr layer, std::vector<NodeId> inputs);
  /// Makes rows of whatever comes; nothing when rows come already.
  void flatten();

  NodeId last() const { return graph_.output(); }
  const ValueSpec& value(NodeId id) const { return graph_.node(id).output; }
  /// Throws ShapeError that names the model when the loss does not fit the output and the data.
  Graph finish(LossPtr loss) &&;

 private:
  void check_size(NodeId id);

  SampleSpec data_;
  Graph graph_;
  std::int64_t parameters_ = 0;
  double flops_ = 0;
};

/// As a message calls it: "images 1x28x28 with 10 classes", "sparse rows of 123 columns with 2 classes".
std::string describe(const SampleSpec& data);

}  // namespace distbelief
