#include "metrics/format.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace distbelief {

std::string grouped(std::uint64_t number) {
  std::string text = std::to_string(number);
  for (std::size_t at = text.size(); at > 3;) {
    at -= 3;
    text.insert(at, 1, ',');
  }
  return text;
}

std::string short_number(double number) {
  constexpr std::array<const char*, 5> kUnits = {"", "k", "M", "G", "T"};
  if (!std::isfinite(number)) {
    return fmt::format("{}", unsigned_nan(number));
  }
  std::size_t unit = 0;
  // Just below 1000 and not 1000 itself, for 999.96 is shown as "1.0k" and not as "1000.0".
  while (std::abs(number) >= (unit == 0 ? 999.5 : 999.95) && unit + 1 < kUnits.size()) {
    number /= 1000;
    ++unit;
  }
  if (unit == 0) {
    return std::abs(number) < 10 && number != std::round(number) ? fmt::format("{:.1f}", number)
                                                                 : fmt::format("{:.0f}", number);
  }
  return fmt::format("{:.1f}{}", number, kUnits[unit]);
}

std::string clock_text(double seconds) {
  if (!std::isfinite(seconds) || seconds > 1e9) {
    return "-:--";
  }
  const auto whole = static_cast<std::int64_t>(std::max(0.0, seconds) + 0.5);
  return whole >= 3600 ? fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60)
                       : fmt::format("{}:{:02}", whole / 60, whole % 60);
}

std::string duration_text(double seconds) {
  if (!std::isfinite(seconds) || seconds > 1e12) {
    return "?";
  }
  if (seconds < 59.95) {
    return fmt::format("{:.1f} s", std::max(0.0, seconds));
  }
  const auto whole = static_cast<std::int64_t>(seconds + 0.5);
  return whole < 3600 ? fmt::format("{} min {} s", whole / 60, whole % 60)
                      : fmt::format("{} h {} min", whole / 3600, whole / 60 % 60);
}

std::string bytes_text(std::uint64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto size = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (size >= 1023.95 && unit + 1 < kUnits.size()) {
    size /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", size, kUnits[unit]);
}

std::string measure_text(double value) {
  const double size = std::abs(value);
  return size == 0 || (size >= 0.001 && size < 1000) ? fmt::format("{:.4f}", value)
                                                     : fmt::format("{:.4g}", unsigned_nan(value));
}

double unsigned_nan(double value) { return std::isnan(value) ? std::abs(value) : value; }

std::string percent_text(double fraction) { return fmt::format("{:.2f} %", unsigned_nan(fraction * 100)); }

}  // namespace distbelief
