#include "metrics/page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "metrics/format.h"
#include "metrics/html.h"
#include "metrics/report_page.h"

namespace distbelief {
namespace {

constexpr const char* kAverageNote =
    "<p class=\"note\">Thin lines are the measurements, thick ones their moving average.</p>\n";

}  // namespace

std::string html_page(std::string_view title, std::string_view body, std::string_view more_style) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "script-src 'unsafe-inline'\">\n<title>{}</title>\n<style>{}{}</style>\n</head>\n<body>\n<main>\n{}</main>\n"
      "<footer>Written by distbelief.</footer>\n<script>{}</script>\n</body>\n</html>\n",
      escape_html(title), report_style(), more_style, body, report_script());
}

std::string charts_section(const std::vector<Chart>& charts) {
  std::string figures;
  std::string json;
  bool averaged = false;
  for (const Chart& chart : charts) {
    const std::string figure = chart_html(chart);
    if (figure.empty()) {
      continue;
    }
    averaged = averaged || figure.find("class=\"faint") != std::string::npos;
    figures += figure;
    json += (json.empty() ? "" : ",") + chart_json(chart);
  }
  if (figures.empty()) {
    return "";
  }
  return fmt::format(
      "<section class=\"charts\">\n{}</section>\n{}"
      "<svg class=\"hidden\"><clipPath id=\"inside\"><path d=\"M-9-9H1009V1009H-9z\"/></clipPath></svg>\n"
      "<script type=\"application/json\" id=\"charts\">[{}]</script>\n",
      figures, averaged ? kAverageNote : "", escape_script_json(json));
}

std::string facts_section(const Pairs& facts) {
  std::string html = "<dl class=\"facts\">\n";
  bool first = true;
  for (const auto& [label, value] : facts) {
    html += fmt::format("<div{}><dt>{}</dt><dd>{}</dd></div>\n", std::exchange(first, false) ? " class=\"first\"" : "",
                        escape_html(label), escape_html(value));
  }
  return html + "</dl>\n";
}

std::string pairs_section(std::string_view title, const Pairs& pairs) {
  if (pairs.empty()) {
    return "";
  }
  std::string html = fmt::format("<section><h2>{}</h2>\n<div class=\"card\"><table class=\"pairs\">\n", title);
  for (const auto& [key, value] : pairs) {
    html += fmt::format("<tr><th>{}</th><td>{}</td></tr>\n", escape_html(key), escape_html(value));
  }
  return html + "</table></div></section>\n";
}

Pairs machine_pairs(const Machine& machine) {
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
  add("System", machine.system);
  add("Kernel", machine.kernel);
  return pairs;
}

}  // namespace distbelief
