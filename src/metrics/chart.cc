#include "metrics/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/json.h"
#include "metrics/html.h"
#include "metrics/ticks.h"

namespace distbelief {
namespace {

constexpr std::size_t kMostPoints = 600;
constexpr std::size_t kSmoothFrom = 80;
constexpr std::size_t kDotsUpTo = 40;
constexpr double kSide = 1000;  // of the SVG's square, which is stretched over the plot

/// A series as it is drawn.
struct Curve {
  const ChartSeries* series;
  std::vector<ChartPoint> line;
  std::vector<ChartPoint> faint;  ///< empty unless `line` is an average
};

struct Layout {
  std::vector<Curve> curves;
  Axis x;
  Axis y;
  bool empty() const { return curves.empty(); }
};

double scale_of(ChartUnit unit) { return unit == ChartUnit::percent ? 100 : 1; }

Curve curve_of(const ChartSeries& series, double scale) {
  std::vector<ChartPoint> points = finite_points(series.points);
  for (ChartPoint& point : points) {
    point.y *= scale;
  }
  Curve curve{&series, {}, {}};
  if (series.smooth && points.size() >= kSmoothFrom) {
    curve.line = thinned(smoothed(points), kMostPoints);
    curve.faint = thinned(points, kMostPoints);
  } else {
    curve.line = thinned(points, kMostPoints);
  }
  return curve;
}

/// From the lowest to the highest value; but when few of many points (a loss before it first falls, a stall) would take
/// most of the height, they are left to run out of the picture.
std::pair<double, double> visible_range(const std::vector<ChartPoint>& points) {
  std::vector<double> values;
  for (const ChartPoint& point : points) {
    values.push_back(point.y);
  }
  std::sort(values.begin(), values.end());
  if (values.size() < kSmoothFrom) {
    return {values.front(), values.back()};
  }
  const std::size_t cut = values.size() * 3 / 100;
  const double low = values[cut];
  const double high = values[values.size() - 1 - cut];
  const double margin = 0.25 * (high - low);
  const double spread = values.back() - values.front();
  return {values.front() < low - margin && spread > 2 * (high - low) ? low - margin : values.front(),
          values.back() > high + margin && spread > 2 * (high - low) ? high + margin : values.back()};
}

Layout layout_of(const Chart& chart) {
  Layout layout;
  double x_low = std::numeric_limits<double>::infinity();
  double x_high = -x_low;
  double y_low = x_low;
  double y_high = -x_low;
  for (const ChartSeries& series : chart.series) {
    Curve curve = curve_of(series, scale_of(chart.unit));
    if (curve.line.empty()) {
      continue;
    }
    for (const ChartPoint& point : curve.line) {
      x_low = std::min(x_low, point.x);
      x_high = std::max(x_high, point.x);
    }
    const auto [low, high] = visible_range(curve.faint.empty() ? curve.line : curve.faint);
    y_low = std::min(y_low, low);
    y_high = std::max(y_high, high);
    layout.curves.push_back(std::move(curve));
  }
  if (!layout.empty()) {
    if (chart.line) {
      y_low = std::min(y_low, *chart.line * scale_of(chart.unit));
      y_high = std::max(y_high, *chart.line * scale_of(chart.unit));
    }
    if (chart.y_low) {
      y_low = std::min(std::max(y_low, *chart.y_low * scale_of(chart.unit)), y_high);
    }
    // Values that nearly reach 0 are shown from there.
    const bool y_zero = y_low > 0 && (chart.from_zero || y_low < 0.25 * y_high);
    layout.x = chart.x_log ? log_axis(x_low, std::max(chart.x_high, x_high))
                           : nice_axis(std::min(0.0, x_low), std::max(chart.x_high, x_high), 6, true);
    layout.y = nice_axis(y_zero ? 0 : y_low, y_high, 4);
  }
  return layout;
}

std::string path_of(const std::vector<ChartPoint>& points, const Layout& layout) {
  std::string path;
  for (const ChartPoint& point : points) {
    fmt::format_to(std::back_inserter(path), "{}{:.1f} {:.1f}", path.empty() ? 'M' : 'L',
                   kSide * layout.x.place(point.x), kSide * (1 - layout.y.place(point.y)));
  }
  return path;
}

/// Zero-length strokes with round ends: dots that stay round however the square is stretched. Lines are clipped at the
/// edge, where a dot would be cut in half: those outside are left out instead.
std::string dots_of(const std::vector<ChartPoint>& points, const Layout& layout) {
  std::string path;
  for (const ChartPoint& point : points) {
    const double height = layout.y.place(point.y);
    if (height >= 0 && height <= 1) {
      fmt::format_to(std::back_inserter(path), "M{:.1f} {:.1f}h0", kSide * layout.x.place(point.x),
                     kSide * (1 - height));
    }
  }
  return path;
}

std::string svg_of(const Chart& chart, const Layout& layout) {
  std::string svg =
      fmt::format("<svg viewBox=\"0 0 {0:.0f} {0:.0f}\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{1}\">",
                  kSide, escape_html(chart.title));
  std::string grid;
  for (const double tick : layout.y.ticks) {
    fmt::format_to(std::back_inserter(grid), "M0 {:.1f}H{:.0f}", kSide * (1 - layout.y.place(tick)), kSide);
  }
  svg += "<path class=\"grid\" d=\"" + grid + "\"/>";
  if (chart.line) {
    svg += fmt::format("<path class=\"level\" d=\"M0 {:.1f}H{:.0f}\"/>",
                       kSide * (1 - layout.y.place(*chart.line * scale_of(chart.unit))), kSide);
  }
  for (const Curve& curve : layout.curves) {
    const int color = curve.series->color;
    if (!curve.faint.empty()) {
      svg += fmt::format("<path class=\"faint s{}\" d=\"{}\"/>", color, path_of(curve.faint, layout));
    }
    svg += fmt::format("<path class=\"line s{}\" d=\"{}\"/>", color, path_of(curve.line, layout));
    if (curve.line.size() <= kDotsUpTo) {
      svg += fmt::format("<path class=\"dots s{}\" d=\"{}\"/>", color, dots_of(curve.line, layout));
    }
  }
  return svg + "</svg>";
}

std::string legend_of(const Chart& chart, const Layout& layout) {
  if (layout.curves.size() == 1) {
    return "";  // the title says it
  }
  std::string legend = "<span class=\"legend\">";
  for (const Curve& curve : layout.curves) {
    legend += fmt::format("<span class=\"key s{}\">{}</span>", curve.series->color, escape_html(curve.series->label));
  }
  if (chart.line && !chart.line_label.empty()) {
    legend += fmt::format("<span class=\"key level\">{}</span>", escape_html(chart.line_label));
  }
  return legend + "</span>";
}

std::string labels_of(const Chart& chart, const Layout& layout) {
  constexpr const char* kNames[] = {"epoch", "seconds", "samples"};
  std::string labels = fmt::format("<span class=\"xname\">{}</span>", kNames[static_cast<int>(chart.x)]);
  for (const double tick : layout.y.ticks) {
    labels += fmt::format("<span class=\"ytick\" style=\"top:{:.2f}%\">{}{}</span>", 100 * (1 - layout.y.place(tick)),
                          tick_label(layout.y, tick), chart.unit == ChartUnit::percent ? "&#8201;%" : "");
  }
  for (const double tick : layout.x.ticks) {
    labels += fmt::format("<span class=\"xtick\" style=\"left:{:.2f}%\">{}</span>", 100 * layout.x.place(tick),
                          tick_label(layout.x, tick));
  }
  return labels;
}

Json json_of(const Curve& curve) {
  Json x = Json::array();
  Json y = Json::array();
  Json step = Json::array();
  const auto rounded = [](double value) {
    return parse_json(fmt::format("{:.6g}", value));  // six digits are more than a screen shows
  };
  for (const ChartPoint& point : curve.line) {
    x.push_back(rounded(point.x));
    y.push_back(rounded(point.y));
    step.push_back(point.step);
  }
  return {{"label", curve.series->label}, {"color", curve.series->color}, {"x", x}, {"y", y}, {"step", step}};
}

}  // namespace

std::vector<ChartPoint> finite_points(const std::vector<ChartPoint>& points) {
  std::vector<ChartPoint> finite;
  std::copy_if(points.begin(), points.end(), std::back_inserter(finite),
               [](const ChartPoint& point) { return std::isfinite(point.x) && std::isfinite(point.y); });
  return finite;
}

std::vector<ChartPoint> smoothed(const std::vector<ChartPoint>& points) {
  const std::size_t reach = std::max<std::size_t>(1, points.size() / 80);
  std::vector<double> sums(points.size() + 1);
  for (std::size_t i = 0; i < points.size(); ++i) {
    sums[i + 1] = sums[i] + points[i].y;
  }
  std::vector<ChartPoint> smooth = points;
  for (std::size_t i = 0; i < points.size(); ++i) {
    // Symmetric at the beginning, which is steep and must not be pulled aside; at the end with what there is.
    const std::size_t before = std::min(reach, i);
    const std::size_t after = std::min(before, points.size() - 1 - i);
    smooth[i].y = (sums[i + after + 1] - sums[i - before]) / static_cast<double>(before + after + 1);
  }
  return smooth;
}

std::vector<ChartPoint> thinned(const std::vector<ChartPoint>& points, std::size_t limit) {
  if (points.size() <= limit) {
    return points;
  }
  const std::size_t stretches = std::max<std::size_t>(1, limit / 2);
  std::vector<ChartPoint> thin;
  for (std::size_t i = 0; i < stretches; ++i) {
    const auto begin = points.begin() + static_cast<std::ptrdiff_t>(i * points.size() / stretches);
    const auto end = points.begin() + static_cast<std::ptrdiff_t>((i + 1) * points.size() / stretches);
    auto [low, high] =
        std::minmax_element(begin, end, [](const ChartPoint& a, const ChartPoint& b) { return a.y < b.y; });
    if (high < low) {
      std::swap(low, high);
    }
    thin.push_back(*low);
    if (high != low) {
      thin.push_back(*high);
    }
  }
  return thin;
}

std::string chart_html(const Chart& chart) {
  const Layout layout = layout_of(chart);
  if (layout.empty()) {
    return "";
  }
  return fmt::format(
      "<figure class=\"chart\">\n<figcaption>{}{}</figcaption>\n<div class=\"frame\"><div class=\"plot\" "
      "tabindex=\"0\">{}{}</div></div>\n</figure>\n",
      escape_html(chart.title), legend_of(chart, layout), svg_of(chart, layout), labels_of(chart, layout));
}

std::string chart_json(const Chart& chart) {
  const Layout layout = layout_of(chart);
  if (layout.empty()) {
    return "null";
  }
  constexpr const char* kUnits[] = {"measure", "percent", "count"};
  Json json;
  json["unit"] = kUnits[static_cast<int>(chart.unit)];
  constexpr const char* kKinds[] = {"epochs", "seconds", "samples"};
  json["kind"] = kKinds[static_cast<int>(chart.x)];
  json["log"] = layout.x.log;
  json["x"] = {layout.x.low, layout.x.high};
  json["y"] = {layout.y.low, layout.y.high};
  json["series"] = Json::array();
  for (const Curve& curve : layout.curves) {
    json["series"].push_back(json_of(curve));
  }
  return json_text(json);
}

}  // namespace distbelief
