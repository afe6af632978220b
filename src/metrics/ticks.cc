#include "metrics/ticks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "metrics/format.h"

namespace distbelief {
namespace {

double nice_step(double range, int count) {
  const double rough = range / std::max(1, count);
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  const double digit = rough / power;
  // The bounds lie at the geometric means of 1, 2, 5 and 10, so that the count is met as closely as can be.
  return power * (digit < std::sqrt(2.0) ? 1 : digit < std::sqrt(10.0) ? 2 : digit < std::sqrt(50.0) ? 5 : 10);
}

/// "45k", not "45.0k".
std::string short_whole(double number) {
  std::string text = short_number(number);
  if (const std::size_t zero = text.find(".0"); zero != std::string::npos) {
    text.erase(zero, 2);
  }
  return text;
}

}  // namespace

Axis nice_axis(double low, double high, int count, bool exact) {
  constexpr double kHuge = 1e300;
  low = std::clamp(low, -kHuge, kHuge);
  high = std::clamp(high, -kHuge, kHuge);
  if (high < low) {
    std::swap(low, high);
  }
  // A range too small for doubles to divide is opened around its middle.
  const double least = std::max(1e-300, 1e-9 * std::max(std::abs(low), std::abs(high)));
  if (!(high - low > least)) {
    const double margin = low == 0 ? 0.5 : 0.1 * std::abs(low);
    low -= margin;
    high += margin;
  }
  const double step = nice_step(high - low, count);
  if (const double next = std::ceil(high / step) * step; exact && next - high < 0.02 * (high - low)) {
    high = next;  // an end so close to a tick shows it
  }
  Axis axis;
  const double first = exact ? std::ceil(low / step - 1e-6) : std::floor(low / step + 1e-6);
  const double last = exact ? std::floor(high / step + 1e-6) : std::ceil(high / step - 1e-6);
  axis.low = exact ? low : first * step;
  axis.high = exact ? high : last * step;
  for (double i = first; i <= last && axis.ticks.size() < 100; ++i) {
    axis.ticks.push_back(i * step);
  }
  axis.decimals = static_cast<int>(std::clamp(-std::floor(std::log10(step) + 1e-9), 0.0, 300.0));
  return axis;
}

double Axis::place(double value) const {
  return log ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low);
}

Axis log_axis(double low, double high) {
  constexpr double kDecadesWithAllTicks = 3;
  low = std::clamp(low, 1e-300, 1e300);
  high = std::clamp(high, 1e-300, 1e300);
  if (!(high > 1.001 * low)) {
    high = 2 * low;
  }
  Axis axis = {.low = low, .high = high, .ticks = {}, .decimals = 0, .log = true};
  const bool all = std::log10(high / low) <= kDecadesWithAllTicks;
  for (double power = std::floor(std::log10(low)); power <= std::log10(high); ++power) {
    for (const double digit : {1.0, 2.0, 5.0}) {
      const double tick = digit * std::pow(10.0, power);
      if ((all || digit == 1.0) && tick >= low * 0.999 && tick <= high * 1.001) {
        axis.ticks.push_back(tick);
      }
    }
  }
  return axis;
}

std::string tick_label(const Axis& axis, double tick) {
  if (tick == 0) {
    return "0";
  }
  if (axis.log) {
    return tick < 1000 ? fmt::format("{:.3g}", tick) : short_whole(tick);
  }
  const double largest = std::max(std::abs(axis.low), std::abs(axis.high));
  if (largest < 0.0005 || largest >= 1e15) {
    return fmt::format("{:.3g}", tick);
  }
  if (axis.decimals > 0) {
    return fmt::format("{:.{}f}", tick, axis.decimals);
  }
  if (largest >= 10000) {
    return short_whole(tick);
  }
  const auto whole = static_cast<std::uint64_t>(std::abs(tick) + 0.5);
  return (tick < 0 && whole > 0 ? "-" : "") + grouped(whole);
}

}  // namespace distbelief
