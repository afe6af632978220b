#include "models/model_text.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace distbelief {
namespace {

/// 1234567 as "1,234,567".
std::string grouped(std::int64_t number) {
  std::string digits = std::to_string(number);
  for (auto place = static_cast<std::ptrdiff_t>(digits.size()) - 3; place > 0; place -= 3) {
    digits.insert(static_cast<std::size_t>(place), ",");
  }
  return digits;
}

/// Three significant digits with a unit: 1234567 as "1.23 M".
std::string scaled(double number, double step, std::span<const std::string_view> units) {
  std::size_t unit = 0;
  while (number >= step && unit + 1 < units.size()) {
    number /= step;
    ++unit;
  }
  const int decimals = unit == 0 || number >= 100 ? 0 : number >= 10 ? 1 : 2;
  return fmt::format("{:.{}f}{}", number, decimals, units[unit]);
}

std::string flops_text(std::int64_t flops) {
  constexpr std::array<std::string_view, 5> kUnits = {"", " k", " M", " G", " T"};
  return scaled(static_cast<double>(flops), 1000, kUnits);
}

std::string bytes_text(std::int64_t bytes) {
  constexpr std::array<std::string_view, 5> kUnits = {" bytes", " KiB", " MiB", " GiB", " TiB"};
  return scaled(static_cast<double>(bytes), 1024, kUnits);
}

bool is_view(const Layer& layer) { return layer.type() == "flatten" || layer.type() == "reshape"; }

std::int64_t kept_bytes(const Graph& graph) {
  std::int64_t elements = 0;
  const Graph fused = graph.fused();
  for (const Node& node : fused.nodes()) {
    if (node.layer != nullptr && !is_view(*node.layer)) {
      elements += node.output.shape.elements();
    }
  }
  return elements * static_cast<std::int64_t>(sizeof(float));
}

}  // namespace

ModelSummary summarize(const Graph& graph) {
  ModelSummary summary;
  summary.name = graph.name();
  summary.loss = graph.loss().type();
  for (NodeId id = 0; id <= graph.output(); ++id) {
    const Node& node = graph.node(id);
    LayerRow row{.name = node.name, .type = "input", .inputs = {}, .output = node.output.shape.sample()};
    if (node.layer != nullptr) {
      const std::vector<ValueSpec> inputs = graph.input_specs(id);
      row.type = node.layer->type();
      row.flops = node.layer->flops(inputs);
      for (const ParameterSpec& parameter : node.layer->parameters(inputs)) {
        const std::int64_t count = parameter.shape.elements();
        (parameter.kind == ParameterKind::optimized ? row.parameters : summary.statistics) += count;
      }
    }
    for (const NodeId input : node.inputs) {
      row.inputs.push_back(graph.node(input).name);
    }
    summary.parameters += row.parameters;
    summary.flops += row.flops;
    summary.rows.push_back(std::move(row));
  }
  summary.parameter_bytes = (summary.parameters + summary.statistics) * static_cast<std::int64_t>(sizeof(float));
  summary.activation_bytes = kept_bytes(graph);
  return summary;
}

std::string model_text(const ModelSummary& summary) {
  std::vector<std::array<std::string, 5>> cells = {{"layer", "type", "output", "parameters", "FLOPs"}};
  for (const LayerRow& row : summary.rows) {
    cells.push_back({row.name, row.type, row.output.text(), row.parameters == 0 ? "" : grouped(row.parameters),
                     row.flops == 0 ? "" : flops_text(row.flops)});
  }
  std::array<std::size_t, 5> widths{};
  for (const auto& line : cells) {
    for (std::size_t column = 0; column < line.size(); ++column) {
      widths[column] = std::max(widths[column], line[column].size());
    }
  }
  std::string text;
  for (const auto& line : cells) {
    std::string row = fmt::format("{:<{}}  {:<{}}  {:<{}}  {:>{}}  {:>{}}", line[0], widths[0], line[1], widths[1],
                                  line[2], widths[2], line[3], widths[3], line[4], widths[4]);
    row.erase(row.find_last_not_of(' ') + 1);
    text += row + "\n";
  }
  text += fmt::format("\nmodel        {}, loss {}\n", summary.name, summary.loss);
  text += fmt::format("parameters   {}", grouped(summary.parameters));
  if (summary.statistics > 0) {
    text += fmt::format(" and {} statistics", grouped(summary.statistics));
  }
  text += fmt::format(", {}\n", bytes_text(summary.parameter_bytes));
  text += fmt::format("FLOPs        {} a sample, forward\n", flops_text(summary.flops));
  text += fmt::format("activations  about {} a sample, when training\n", bytes_text(summary.activation_bytes));
  return text;
}

}  // namespace distbelief
