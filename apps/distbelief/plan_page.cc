// A plan as a page: a picture of the processes and what passes between them, how each spends a step, and all numbers.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "metrics/format.h"
#include "metrics/html.h"
#include "plan_view.h"
#include "quantities.h"

namespace distbelief {
namespace {

constexpr std::string_view kPlanStyle = R"css(
.picture { overflow-x: auto; }
.picture text { font: 13px system-ui, sans-serif; fill: var(--ink); }
.picture .soft { fill: var(--soft); font-size: 12px; }
.picture .box { fill: var(--card); stroke: var(--s0); stroke-width: 1.5; }
.picture .arrow { stroke: var(--soft); stroke-width: 1.5; fill: none; }
.picture .head { fill: var(--soft); }
.results td, .results th { white-space: nowrap; }
.results .number { text-align: right; }
.results td.long { white-space: normal; }
.times { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 6px 14px; align-items: center; font-size: 13px; }
.times .bar { display: flex; height: 14px; border-radius: 3px; overflow: hidden; background: var(--grid); }
.times .bar i { display: block; background: var(--c); }
.wait { --c: var(--rule); }
)css";

constexpr int kBoxWidth = 210;
constexpr int kBoxHeight = 92;
constexpr int kGapAcross = 90;
constexpr int kGapDown = 18;
constexpr std::size_t kMostBoxes = 64;
constexpr std::size_t kMostLetters = 26;

std::string shortened(const std::string& text) {
  std::size_t letters = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool begins = (static_cast<unsigned char>(text[i]) & 0xC0U) != 0x80U;
    if (begins && ++letters > kMostLetters) {
      return text.substr(0, i) + "…";
    }
  }
  return text;
}

/// Bytes that leave a stage towards the next ones in a step, of one process: what its sends add up to.
std::int64_t bytes_forward(const PlanView& plan, int stage) {
  const WeighedCut& cut = plan.chosen();
  const Graph& graph = *plan.graph;
  std::int64_t floats = 0;
  for (std::size_t i = 1; i < graph.nodes().size(); ++i) {
    const bool leaves = cut.partition.stage[i] <= stage && std::ranges::any_of(graph.nodes(), [&](const Node& reader) {
                          const auto at = static_cast<std::size_t>(&reader - graph.nodes().data());
                          return cut.partition.stage[at] > stage &&
                                 std::ranges::find(reader.inputs, static_cast<NodeId>(i)) != reader.inputs.end();
                        });
    floats += leaves ? graph.nodes()[i].output.shape.elements() * cut.step.rows : 0;
  }
  return floats * static_cast<std::int64_t>(sizeof(float));
}

std::string picture(const PlanView& plan) {
  const WeighedCut& cut = plan.chosen();
  if (cut.prediction.processes.size() > kMostBoxes) {
    return "";
  }
  const int width = cut.stages * kBoxWidth + (cut.stages - 1) * kGapAcross + 4;
  const int height = cut.tensor * kBoxHeight + (cut.tensor - 1) * kGapDown + 34;
  std::string svg = fmt::format(
      "<section><h2>Who does what</h2>\n<div class=\"card picture\"><svg role=\"img\" aria-label=\"processes and what "
      "passes between them\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\">\n",
      width, height);
  for (int stage = 0; stage < cut.stages; ++stage) {
    const int x = 2 + stage * (kBoxWidth + kGapAcross);
    svg += fmt::format("<text x=\"{}\" y=\"18\" class=\"soft\">stage {}</text>\n", x, stage + 1);
    if (stage + 1 < cut.stages) {
      const int from = x + kBoxWidth;
      const int y = 30 + (height - 34) / 2;
      svg += fmt::format(
          "<path class=\"arrow\" d=\"M{0} {1}H{2}\"/><path class=\"head\" d=\"M{3} {1}l-8 -5v10z\"/>"
          "<text class=\"soft\" text-anchor=\"middle\" x=\"{4}\" y=\"{5}\">{6}</text>"
          "<text class=\"soft\" text-anchor=\"middle\" x=\"{4}\" y=\"{7}\">and back</text>\n",
          from + 6, y, from + kGapAcross - 12, from + kGapAcross - 6, from + kGapAcross / 2, y - 8,
          escape_html(bytes_text(static_cast<std::uint64_t>(bytes_forward(plan, stage)))), y + 18);
    }
  }
  for (const ProcessPrediction& process : cut.prediction.processes) {
    const int x = 2 + process.stage * (kBoxWidth + kGapAcross);
    const int y = 28 + process.position * (kBoxHeight + kGapDown);
    const std::array<std::string, 3> lines = {
        fmt::format("{} parameters", short_number(static_cast<double>(process.parameters))),
        fmt::format("{} of memory", bytes_text(static_cast<std::uint64_t>(process.memory.total()))),
        fmt::format("computes {}", short_time(process.time.compute))};
    svg += fmt::format(
        "<rect class=\"box\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"10\"/>"
        "<text x=\"{}\" y=\"{}\">{}</text>",
        x, y, kBoxWidth, kBoxHeight, x + 12, y + 22,
        escape_html(shortened(layer_range(*plan.graph, cut.partition, process.stage))));
    for (std::size_t i = 0; i < lines.size(); ++i) {
      svg += fmt::format("<text class=\"soft\" x=\"{}\" y=\"{}\">{}</text>", x + 12, y + 42 + 18 * static_cast<int>(i),
                         escape_html(lines[i]));
    }
    svg += "\n";
  }
  return svg + "</svg></div></section>\n";
}

std::string times(const PlanView& plan) {
  const Prediction& prediction = plan.chosen().prediction;
  std::string html =
      "<section><h2>A step</h2>\n<div class=\"card\"><p class=\"legend\"><span class=\"key s0\">computes</span> <span "
      "class=\"key s1\">exchanges</span> <span class=\"key s2\">updates</span> <span class=\"key "
      "wait\">waits</span></p><div class=\"times\">\n";
  const std::vector<std::vector<std::string>> rows = process_rows(plan);
  for (std::size_t i = 0; i < prediction.processes.size() && i < kMostBoxes; ++i) {
    const ProcessTime& time = prediction.processes[i].time;
    const auto share = [&](double seconds) { return 100 * seconds / prediction.step_seconds; };
    html += fmt::format(
        "<span>{}</span><div class=\"bar\"><i class=\"s0\" style=\"width:{:.2f}%\"></i><i class=\"s1\" "
        "style=\"width:{:.2f}%\"></i><i class=\"s2\" style=\"width:{:.2f}%\"></i></div>\n",
        escape_html(rows[i + 1][0]), share(time.compute), share(time.exchange), share(time.update));
  }
  return html + "</div></div></section>\n";
}

/// Columns of `numbers` and after are numbers, up to the last but `words`.
std::string rows_html(std::string_view title, const std::vector<std::vector<std::string>>& rows, std::size_t numbers,
                      std::size_t words) {
  std::string html =
      fmt::format("<section><h2>{}</h2>\n<div class=\"card picture\"><table class=\"results\">\n<thead><tr>", title);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    html += i == 0 ? "" : "<tr>";
    for (std::size_t column = 0; column < rows[i].size(); ++column) {
      const bool number = column >= numbers && column + words < rows[i].size();
      html += fmt::format("<{0}{1}>{2}</{0}>", i == 0 ? "th" : "td",
                          number       ? " class=\"number\""
                          : column > 0 ? " class=\"long\""
                                       : "",
                          escape_html(rows[i][column]));
    }
    html += i == 0 ? "</tr></thead>\n<tbody>\n" : "</tr>\n";
  }
  return html + "</tbody></table></div></section>\n";
}

std::string layers_html(const PlanView& plan) {
  const Partition& partition = plan.chosen().partition;
  std::vector<std::vector<std::string>> rows = {{"layer", "kind", "stage", "how it is cut"}};
  for (std::size_t i = 1; i < partition.cuts.size(); ++i) {
    const Node& node = plan.graph->nodes()[i];
    rows.push_back({node.name, std::string(node.layer->type()), fmt::format("{}", partition.stage[i] + 1),
                    partition.tensor == 1            ? ""
                    : partition.cuts[i] == Cut::none ? "each does all of it"
                                                     : name_of(partition.cuts[i])});
  }
  return rows_html("Layers", rows, 2, 1);
}

}  // namespace

std::string plan_html(const PlanView& plan) {
  const WeighedCut& cut = plan.chosen();
  std::string body = fmt::format(
      "<header>\n<h1>{} <span class=\"on\">over</span> {}</h1>\n<p class=\"sub\">{} of the network, {} samples a step "
      "of "
      "each in {} micro-batch{}</p>\n</header>\n",
      escape_html(plan.graph->name()), escape_html(grid_name(cut.stages, cut.tensor)),
      cut.step.replicas == 1 ? "one copy" : fmt::format("{} copies", cut.step.replicas), cut.step.rows,
      cut.step.micro_batches, cut.step.micro_batches == 1 ? "" : "es");
  body += facts_section(plan_facts(plan));
  body += picture(plan) + times(plan);
  body += rows_html("Processes", process_rows(plan), 2, 0);
  if (const auto rows = rejected_rows(plan); rows.size() > 1) {
    body += rows_html("What was not chosen", rows, 1, 1);
  }
  Pairs basis = {{"Layers", plan.costs}, {"Links", plan.links}};
  for (const std::string& note : plan.notes) {
    basis.emplace_back("Note", note);
  }
  body += pairs_section("What it rests on", basis) + layers_html(plan);
  return html_page(fmt::format("{} over {}: plan", plan.graph->name(), grid_name(cut.stages, cut.tensor)), body,
                   kPlanStyle);
}

}  // namespace distbelief
