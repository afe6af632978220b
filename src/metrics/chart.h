#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace distbelief {

/// One measurement of a curve.
struct ChartPoint {
  double x = 0;
  double y = 0;
  std::int64_t step = 0;
};

struct ChartSeries {
  std::string label;
  int color = 0;  ///< which of the page's series colours
  std::vector<ChartPoint> points;
  bool smooth = true;  ///< many noisy points are drawn faintly beneath their moving average
};

enum class ChartUnit { measure, percent, count };
enum class ChartX { epochs, seconds, samples };

struct Chart {
  std::string title;
  ChartUnit unit = ChartUnit::measure;
  std::vector<ChartSeries> series;
  bool from_zero = false;  ///< the vertical axis begins at 0
  double x_high = 0;       ///< the horizontal axis reaches at least to here, so that charts of one page agree
  ChartX x = ChartX::epochs;
  bool x_log = false;                ///< all x are then above 0
  std::optional<double> y_low = {};  ///< what lies below may run out of the picture
  std::optional<double> line = {};   ///< a level that is drawn across, in the unit of y
  std::string line_label = {};       ///< what the legend calls it
};

/// The chart as a <figure>: drawn whole without scripts, as SVG that fills whatever room it gets, with labels in HTML,
/// so that text keeps its size. Points that are not finite are left out. Empty when there is nothing to draw.
std::string chart_html(const Chart& chart);

/// What the page's script needs to show values under the pointer, as a JSON object; "null" when chart_html() is empty.
std::string chart_json(const Chart& chart);

/// A copy without points that are not finite.
std::vector<ChartPoint> finite_points(const std::vector<ChartPoint>& points);
/// Centred moving average over about a fortieth of the points.
std::vector<ChartPoint> smoothed(const std::vector<ChartPoint>& points);
/// At most about `limit` points that look the same: the lowest and the highest of each stretch.
std::vector<ChartPoint> thinned(const std::vector<ChartPoint>& points, std::size_t limit);

}  // namespace distbelief
