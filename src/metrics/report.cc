#include "metrics/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/file.h"
#include "metrics/format.h"
#include "metrics/html.h"
#include "metrics/report_page.h"

namespace distbelief {
namespace {

constexpr std::size_t kLayersShownAtOnce = 24;
constexpr const char* kAverageNote =
    "<p class=\"note\">Thin lines are the measurements, thick ones their moving average.</p>\n";

using Pairs = std::vector<std::pair<std::string, std::string>>;

ChartSeries series_of(const std::vector<MetricsRow>& history, std::string_view name, std::string label, int color) {
  ChartSeries series{std::move(label), color, {}};
  for (const MetricsRow& row : history) {
    if (const auto value = row.value(name)) {
      series.points.push_back({row.epoch, *value, row.step});
    }
  }
  return series;
}

bool sound(const SampleAudit& samples) {
  return samples.lost == 0 && samples.duplicated == 0 && samples.leased == samples.applied + samples.dropped;
}

std::string header_html(const ReportData& report) {
  std::string sub = escape_html(report.algorithm);
  const auto add = [&](const std::string& text) { sub += (sub.empty() ? "" : " &middot; ") + escape_html(text); };
  const auto plural = [](std::int64_t count, std::string_view one) {
    return fmt::format("{} {}{}", count, one, count == 1 ? "" : "s");
  };
  add(plural(report.epochs, "epoch"));
  if (report.workers > 1) {
    add(plural(report.workers, "worker"));
  }
  add(plural(report.threads, "thread"));
  if (!report.finished.empty()) {
    add(report.finished);
  }
  return fmt::format("<header>\n<h1>{} <span class=\"on\">on</span> {}</h1>\n<p class=\"sub\">{}</p>\n</header>\n",
                     escape_html(report.model), escape_html(report.data), sub);
}

/// In full while that is short.
std::string count_text(double count) {
  return count < 99'999.5 ? grouped(static_cast<std::uint64_t>(std::max(0.0, count) + 0.5)) : short_number(count);
}

std::string facts_html(const ReportData& report) {
  Pairs facts;
  if (report.test_accuracy) {
    facts.emplace_back("Test accuracy", percent_text(*report.test_accuracy));
  }
  if (report.test_loss) {
    facts.emplace_back("Test loss", measure_text(*report.test_loss));
  }
  if (report.train_loss) {
    facts.emplace_back("Training loss", measure_text(*report.train_loss));
  }
  facts.emplace_back("Training time", duration_text(report.train_seconds));
  facts.emplace_back("Samples per second", count_text(report.samples_per_second));
  facts.emplace_back("Parameters", count_text(static_cast<double>(report.parameters)));
  std::string html = "<dl class=\"facts\">\n";
  bool first = true;
  for (const auto& [label, value] : facts) {
    html += fmt::format("<div{}><dt>{}</dt><dd>{}</dd></div>\n", std::exchange(first, false) ? " class=\"first\"" : "",
                        label, escape_html(value));
  }
  return html + "</dl>\n";
}

std::string audit_html(const SampleAudit& samples) {
  const bool good = sound(samples);
  return fmt::format("<p class=\"audit{}\"><b>{}</b><span>Samples: {}</span></p>\n", good ? "" : " bad",
                     good ? "&#10003;" : "!", audit_text(samples));
}

std::string charts_html(const std::vector<MetricsRow>& history) {
  std::string figures;
  std::string json;
  bool averaged = false;
  for (const Chart& chart : charts_of(history)) {
    const std::string figure = chart_html(chart);
    if (figure.empty()) {
      continue;
    }
    averaged = averaged || figure.find("class=\"faint") != std::string::npos;
    figures += figure;
    json += (json.empty() ? "" : ",") + chart_json(chart);
  }
  if (figures.empty()) {
    return "<p class=\"note\">Nothing was measured yet.</p>\n";
  }
  return fmt::format(
      "<section class=\"charts\">\n{}</section>\n{}"
      "<svg class=\"hidden\"><clipPath id=\"inside\"><path d=\"M-9-9H1009V1009H-9z\"/></clipPath></svg>\n"
      "<script type=\"application/json\" id=\"charts\">[{}]</script>\n",
      figures, averaged ? kAverageNote : "", escape_script_json(json));
}

std::string pairs_html(std::string_view title, const Pairs& pairs) {
  if (pairs.empty()) {
    return "";
  }
  std::string html = fmt::format("<section><h2>{}</h2>\n<div class=\"card\"><table class=\"pairs\">\n", title);
  for (const auto& [key, value] : pairs) {
    html += fmt::format("<tr><th>{}</th><td>{}</td></tr>\n", escape_html(key), escape_html(value));
  }
  return html + "</table></div></section>\n";
}

std::string layers_html(const std::vector<ReportLayer>& layers) {
  if (layers.empty()) {
    return "";
  }
  const bool with_flops = std::any_of(layers.begin(), layers.end(), [](const auto& layer) { return layer.flops > 0; });
  const auto number = [](double value, const std::string& text) {
    return fmt::format("<td class=\"number{}\">{}</td>", value > 0 ? "" : " none", value > 0 ? text : "&ndash;");
  };
  const auto row = [&](std::string_view name, std::string_view type, std::string_view output, std::uint64_t parameters,
                       double flops) {
    return fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td>{}{}</tr>\n", escape_html(name), escape_html(type),
                       escape_html(output), number(static_cast<double>(parameters), grouped(parameters)),
                       with_flops ? number(flops, short_number(flops)) : "");
  };
  std::string html = "<section><h2>Layers</h2>\n<div class=\"card\">";
  const bool folded = layers.size() > kLayersShownAtOnce;
  if (folded) {
    html += fmt::format("<details><summary>All {} layers</summary>", layers.size());
  }
  html += fmt::format(
      "<table class=\"layers\">\n<thead><tr><th>Name</th><th>Type</th><th>Output</th>"
      "<th class=\"number\">Parameters</th>{}</tr></thead>\n<tbody>\n",
      with_flops ? "<th class=\"number\">FLOPs</th>" : "");
  std::uint64_t parameters = 0;
  double flops = 0;
  for (const ReportLayer& layer : layers) {
    html += row(layer.name, layer.type, layer.output, layer.parameters, layer.flops);
    parameters += layer.parameters;
    flops += layer.flops;
  }
  html += "</tbody>\n<tfoot>" + row("Total", "", "", parameters, flops) + "</tfoot></table>";
  return html + (folded ? "</details>" : "") + "</div></section>\n";
}

Pairs machine_pairs(const ReportData& report) {
  const Machine& machine = report.machine;
  Pairs pairs;
  const auto add = [&](std::string key, const std::string& value) {
    if (!value.empty()) {
      pairs.emplace_back(std::move(key), value);
    }
  };
  add("Host", machine.host);
  add("Processor", machine.cpu);
  if (machine.cores > 0) {
    add("Cores", fmt::format("{} ({} hardware threads usable)", machine.cores, machine.threads));
  }
  add("Instructions", fmt::format("{}", fmt::join(machine.features, ", ")));
  if (machine.memory_bytes > 0) {
    add("Memory", bytes_text(machine.memory_bytes));
  }
  if (report.peak_memory_bytes > 0) {
    add("Used at most", bytes_text(report.peak_memory_bytes));
  }
  add("System", machine.system);
  add("Kernel", machine.kernel);
  return pairs;
}

}  // namespace

std::vector<Chart> charts_of(const std::vector<MetricsRow>& history) {
  std::vector<Chart> charts(4);
  charts[0] = {"Loss", ChartUnit::measure, {}, false, 0};
  charts[1] = {"Accuracy", ChartUnit::percent, {}, false, 0};
  charts[2] = {"Samples per second", ChartUnit::count, {}, true, 0};
  charts[3] = {"Learning rate", ChartUnit::measure, {}, true, 0};
  for (std::size_t i = 0; i < 2; ++i) {
    const std::string kind = i == 0 ? "loss" : "accuracy";
    charts[i].series = {series_of(history, "train_" + kind, "training", 0),
                        series_of(history, "validation_" + kind, "validation", 2),
                        series_of(history, "test_" + kind, "test", 1)};
  }
  charts[2].series = {series_of(history, "samples_per_second", "samples/s", 0)};
  charts[3].series = {series_of(history, "learning_rate", "rate", 3)};
  charts[3].series[0].smooth = false;
  for (const MetricsRow& row : history) {
    for (Chart& chart : charts) {
      chart.x_high = std::isfinite(row.epoch) ? std::max(chart.x_high, row.epoch) : chart.x_high;
    }
  }
  return charts;
}

std::string audit_text(const SampleAudit& samples) {
  return fmt::format("{} leased, {} applied, {} dropped, {} lost, {} twice", grouped(samples.leased),
                     grouped(samples.applied), grouped(samples.dropped), grouped(samples.lost),
                     grouped(samples.duplicated));
}

std::string report_html(const ReportData& report) {
  // The policy forbids the page to load anything, whatever found its way into it.
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "script-src 'unsafe-inline'\">\n<title>{} on {}</title>\n<style>{}</style>\n</head>\n<body>\n<main>\n",
      escape_html(report.model), escape_html(report.data), report_style());
  html += header_html(report);
  html += facts_html(report);
  html += audit_html(report.samples);
  html += charts_html(report.history);
  html += layers_html(report.layers);
  html += "<div class=\"tables\">\n" + pairs_html("Configuration", report.configuration) +
          pairs_html("Machine", machine_pairs(report)) + "</div>\n";
  html += fmt::format("</main>\n<footer>Written by distbelief.</footer>\n<script>{}</script>\n</body>\n</html>\n",
                      report_script());
  return html;
}

void write_report(const std::filesystem::path& path, const ReportData& report) {
  write_file_atomically(path, report_html(report));
}

}  // namespace distbelief
