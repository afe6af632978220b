#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "compare/comparison.h"
#include "metrics/format.h"
#include "metrics/html.h"

namespace distbelief {
namespace {

constexpr int kColors = 10;             // of the page's series
constexpr std::size_t kFoldedAway = 5;  // a fifth of a run's points may run out of the picture below

constexpr std::string_view kStyle = R"css(
.charts { grid-template-columns: minmax(0, 1fr); }
.plot { height: 320px; }
.plot .line { stroke-width: 1.6; }
.plot .dots { stroke-width: 4.5; }
.bars { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 20px; margin: 20px 0 0; }
.bars table { font-size: 13px; }
.bars th, .bars td { padding: 4px 0; border: 0; white-space: nowrap; }
.bars th { width: 1%; color: var(--ink); }
.bars td.value { width: 1%; padding-left: 12px; text-align: right; color: var(--soft); }
.bars td.bar { padding-left: 14px; }
.bar div { height: 12px; min-width: 1px; border-radius: 3px; background: var(--c); }
.results td, .results th { white-space: nowrap; }
.results .number { text-align: right; }
.results .best { font-weight: 640; }
@media (max-width: 760px) { .bars { grid-template-columns: minmax(0, 1fr); } .plot { height: 240px; } }
)css";

int color_of(std::size_t run) { return static_cast<int>(run % kColors); }

/// Points of all runs as curves over one of their numbers.
Chart chart_of(const Comparison& comparison, const std::string& title, ChartX x, double ComparedRun::Point::*abscissa) {
  const Measure& measure = comparison.measure;
  Chart chart;
  chart.title = title;
  chart.unit = measure.is_accuracy ? ChartUnit::percent : ChartUnit::measure;
  chart.x = x;
  chart.x_log = true;
  chart.line = measure.target;
  chart.line_label = measure.target_text();
  double low = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < comparison.runs.size(); ++i) {
    const std::vector<ComparedRun::Point>& points = comparison.runs[i].points;
    ChartSeries series{comparison.runs[i].label, color_of(i), {}, false};
    for (const ComparedRun::Point& point : points) {
      if (point.*abscissa > 0) {
        series.points.push_back({point.*abscissa, point.score, 0});
      }
    }
    if (!points.empty()) {
      low = std::min(low, points[points.size() / kFoldedAway].score);
    }
    chart.series.push_back(std::move(series));
  }
  if (measure.is_accuracy && low < 1) {
    chart.y_low = low;
  }
  return chart;
}

/// One number of each run: how long its bar is, and how it is said. Runs without the number come last, without a bar.
struct Bar {
  std::optional<double> value;
  std::string text;
};

std::string bars_html(const Comparison& comparison, const std::string& title, bool less_is_better,
                      const std::function<Bar(const ComparedRun&)>& bar_of) {
  struct Row {
    std::size_t run;
    Bar bar;
  };
  std::vector<Row> rows;
  double most = 0;
  for (std::size_t i = 0; i < comparison.runs.size(); ++i) {
    rows.push_back({i, bar_of(comparison.runs[i])});
    most = std::max(most, rows.back().bar.value.value_or(0));
  }
  if (std::ranges::none_of(rows, [](const Row& row) { return row.bar.value.has_value(); })) {
    return "";
  }
  std::ranges::stable_sort(rows, [&](const Row& a, const Row& b) {
    if (!a.bar.value || !b.bar.value) {
      return a.bar.value.has_value() && !b.bar.value.has_value();
    }
    return less_is_better ? *a.bar.value < *b.bar.value : *a.bar.value > *b.bar.value;
  });
  std::string html =
      fmt::format("<figure class=\"chart\">\n<figcaption>{}</figcaption>\n<table>\n", escape_html(title));
  for (const Row& row : rows) {
    const double share = row.bar.value && most > 0 ? *row.bar.value / most : 0;
    html += fmt::format(
        "<tr><th>{}</th><td class=\"bar\">{}</td><td class=\"value\">{}</td></tr>\n",
        escape_html(comparison.runs[row.run].label),
        row.bar.value ? fmt::format("<div class=\"s{}\" style=\"width:{:.1f}%\"></div>", color_of(row.run), 100 * share)
                      : "",
        escape_html(row.bar.text));
  }
  return html + "</table>\n</figure>\n";
}

std::string all_bars_html(const Comparison& comparison) {
  const Measure& measure = comparison.measure;
  const auto of_number = [](const std::optional<double>& number, const auto& text, const char* otherwise) {
    return Bar{number, number ? text(*number) : std::string(otherwise)};
  };
  std::string html;
  if (measure.target) {
    html += bars_html(comparison, fmt::format("Time to {} {}", measure.target_text(), measure.name()), true,
                      [&](const ComparedRun& run) {
                        const ComparedRun::Point* const reached = run.reached(measure);
                        return Bar{reached == nullptr ? std::nullopt : std::optional(reached->seconds),
                                   reached == nullptr ? "not reached" : duration_text(reached->seconds)};
                      });
  }
  html += bars_html(comparison, "Samples per second", false, [&](const ComparedRun& run) {
    return of_number(run.samples_per_second > 0 ? std::optional(run.samples_per_second) : std::nullopt, short_number,
                     "not yet");
  });
  html += bars_html(comparison, "Bytes sent per sample", true,
                    [&](const ComparedRun& run) { return of_number(run.bytes_per_sample, short_number, "none"); });
  html += bars_html(comparison, "Staleness of gradients, in updates", true, [&](const ComparedRun& run) {
    return of_number(
        run.staleness_mean,
        [&](double mean) { return fmt::format("mean {:.1f}, most {:.0f}", mean, run.staleness_max.value_or(0)); },
        "none");
  });
  return html.empty() ? "" : "<section class=\"bars\">\n" + html + "</section>\n";
}

std::string table_html(const Comparison& comparison) {
  std::string html = "<section><h2>All numbers</h2>\n<div class=\"card\"><table class=\"results\">\n<thead><tr>";
  const std::vector<std::vector<std::string>> rows = comparison_rows(comparison);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    html += i == 0 ? "" : "<tr>";
    for (std::size_t column = 0; column < rows[i].size(); ++column) {
      html += fmt::format("<{0}{1}>{2}</{0}>", i == 0 ? "th" : "td", column == 0 ? "" : " class=\"number\"",
                          escape_html(rows[i][column]));
    }
    html += i == 0 ? "</tr></thead>\n<tbody>\n" : "</tr>\n";
  }
  return html + "</tbody></table></div></section>\n";
}

std::string problems_html(const Comparison& comparison) {
  std::string html;
  for (const ComparedRun& run : comparison.runs) {
    if (!run.problem.empty()) {
      html += fmt::format("<p class=\"audit bad\"><b>!</b><span>{} {}: {}</span></p>\n", escape_html(run.label),
                          escape_html(run.status), escape_html(run.problem));
    }
  }
  return html;
}

Pairs facts_of(const Comparison& comparison) {
  const Measure& measure = comparison.measure;
  const ComparedRun* fastest = nullptr;
  const ComparedRun* best = nullptr;
  const ComparedRun* quickest = nullptr;
  for (const ComparedRun& run : comparison.runs) {
    if (const auto* reached = run.reached(measure);
        reached != nullptr && (fastest == nullptr || reached->seconds < fastest->reached(measure)->seconds)) {
      fastest = &run;
    }
    if (const auto* own = run.best(measure);
        own != nullptr && (best == nullptr || !measure.reaches(best->best(measure)->score, own->score))) {
      best = &run;
    }
    if (run.samples_per_second > 0 && (quickest == nullptr || run.samples_per_second > quickest->samples_per_second)) {
      quickest = &run;
    }
  }
  Pairs facts;
  if (fastest != nullptr) {
    facts.emplace_back(fmt::format("First at {}: {}", measure.target_text(), fastest->label),
                       duration_text(fastest->reached(measure)->seconds));
  }
  if (best != nullptr) {
    facts.emplace_back(fmt::format("Best {}: {}", measure.name(), best->label),
                       measure.text(best->best(measure)->score));
  }
  if (quickest != nullptr) {
    facts.emplace_back(fmt::format("Most samples per second: {}", quickest->label),
                       short_number(quickest->samples_per_second));
  }
  return facts;
}

/// How many processes there were, where there were several: ", by 2 workers and 1 server".
std::string processes_text(const Comparison& comparison) {
  int workers = 0;
  int servers = 0;
  for (const ComparedRun& run : comparison.runs) {
    workers = std::max(workers, run.workers);
    servers = std::max(servers, run.servers);
  }
  const auto counted = [](int count, const char* what) {
    return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
  };
  return workers < 2 ? ""
                     : fmt::format(", by {}{}", counted(workers, "worker"),
                                   servers == 0 ? "" : " and " + counted(servers, "server"));
}

}  // namespace

std::string comparison_html(const Comparison& comparison) {
  std::string body = fmt::format(
      "<header>\n<h1>{} <span class=\"on\">on</span> {}</h1>\n<p class=\"sub\">{}, one after another on the same data, "
      "seed and machine{}</p>\n</header>\n",
      escape_html(comparison.model), escape_html(comparison.data),
      comparison.runs.size() == 1 ? "one run" : fmt::format("{} runs", comparison.runs.size()),
      processes_text(comparison));
  if (const Pairs facts = facts_of(comparison); !facts.empty()) {
    body += facts_section(facts);
  }
  body += problems_html(comparison);
  std::string name = comparison.measure.name();
  name.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(name.front())));
  const std::string charts = charts_section(
      {chart_of(comparison, name + " over time of training", ChartX::seconds, &ComparedRun::Point::seconds),
       chart_of(comparison, name + " over samples", ChartX::samples, &ComparedRun::Point::samples)});
  body += charts.empty() ? "<p class=\"note\">Nothing was measured yet.</p>\n" : charts;
  body += all_bars_html(comparison) + table_html(comparison);
  body +=
      "<p class=\"note\">Best is the best of any test. Time is time of training. Runs through parameter servers do not "
      "stop to be tested, so theirs "
      "includes it. Samples are those that gradients were computed of. Bytes are those of gradients, parameters and "
      "sums that processes sent each other.</p>\n";
  body += pairs_section("Machine", machine_pairs(comparison.machine));
  return html_page(fmt::format("{} on {}: algorithms side by side", comparison.model, comparison.data), body, kStyle);
}

}  // namespace distbelief
