#include "plan/parameter_layout.h"

namespace distbelief {

ParameterTable layout_parameters(const Graph& graph) {
  ParameterTable table;
  for (NodeId id = 0; id <= graph.output(); ++id) {
    const Node& node = graph.node(id);
    if (node.layer != nullptr) {
      for (ParameterSpec& spec : node.layer->parameters(graph.input_specs(id))) {
        std::string name = parameter_name(node, spec);
        table.add(std::move(name), std::move(spec));
      }
    }
  }
  return table;
}

}  // namespace distbelief
