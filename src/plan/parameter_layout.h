#pragma once

#include "graph/graph.h"
#include "params/parameter_table.h"

namespace distbelief {

/// All parameters of a graph, layer after layer, named "layer.parameter".
ParameterTable layout_parameters(const Graph& graph);

inline std::string parameter_name(const Node& node, const ParameterSpec& spec) { return node.name + "." + spec.name; }

}  // namespace distbelief
