#include "metrics/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/file.h"
#include "metrics/format.h"
#include "metrics/html.h"
#include "metrics/page.h"

namespace distbelief {
namespace {

constexpr std::size_t kLayersShownAtOnce = 24;
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
  return facts_section(facts);
}

std::string audit_html(const SampleAudit& samples) {
  const bool good = sound(samples);
  return fmt::format("<p class=\"audit{}\"><b>{}</b><span>Samples: {}</span></p>\n", good ? "" : " bad",
                     good ? "&#10003;" : "!", audit_text(samples));
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
  Pairs machine = machine_pairs(report.machine);
  if (report.peak_memory_bytes > 0) {
    machine.emplace_back("Used at most", bytes_text(report.peak_memory_bytes));
  }
  const std::string charts = charts_section(charts_of(report.history));
  const std::string body = header_html(report) + facts_html(report) + audit_html(report.samples) +
                           (charts.empty() ? "<p class=\"note\">Nothing was measured yet.</p>\n" : charts) +
                           layers_html(report.layers) + "<div class=\"tables\">\n" +
                           pairs_section("Configuration", report.configuration) + pairs_section("Machine", machine) +
                           "</div>\n";
  return html_page(fmt::format("{} on {}", report.model, report.data), body);
}

void write_report(const std::filesystem::path& path, const ReportData& report) {
  write_file_atomically(path, report_html(report));
}

}  // namespace distbelief
