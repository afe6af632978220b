#include "quantities.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace distbelief {
namespace {

using Units = std::vector<std::pair<std::string_view, double>>;

double quantity(const std::string& option, const std::string& text, const Units& units, std::string_view expected) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  std::string_view unit(stop, static_cast<std::size_t>(end - stop));
  if (unit.ends_with("/s")) {
    unit.remove_suffix(2);
  }
  for (const auto& [name, factor] : units) {
    if (error == std::errc() && name == unit && std::isfinite(number) && number > 0 && number * factor < 1e18) {
      return number * factor;
    }
  }
  throw InputError(fmt::format("--{} {}: expected {}", option, text, expected));
}

}  // namespace

double parse_bandwidth(const std::string& option, const std::string& text) {
  return quantity(
      option, text, {{"Gbit", 1e9 / 8}, {"Mbit", 1e6 / 8}, {"kbit", 1e3 / 8}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}},
      "a number above 0 with Gbit, Mbit, GB or MB behind it, such as 10Gbit: what a process sends a second");
}

double parse_latency(const std::string& option, const std::string& text) {
  return quantity(option, text, {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}},
                  "a number above 0 with ns, us, ms or s behind it, such as 50us");
}

std::int64_t parse_bytes(const std::string& option, const std::string& text) {
  const double bytes = quantity(
      option, text,
      {{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"TiB", 1099511627776.0}, {"GiB", 1073741824.0}, {"MiB", 1048576.0}},
      "a number above 0 with MB, GB, MiB or GiB behind it, such as 2GB");
  return static_cast<std::int64_t>(bytes);
}

double parse_rate(const std::string& option, const std::string& text) {
  return quantity(option, text, {{"M", 1e6}, {"G", 1e9}, {"T", 1e12}, {"", 1}},
                  "operations a second, such as 50G or 2T");
}

std::string short_time(double seconds) {
  return seconds < 1e-3 ? fmt::format("{:.0f} us", seconds * 1e6)
         : seconds < 1  ? fmt::format("{:.1f} ms", seconds * 1e3)
                        : fmt::format("{:.2f} s", seconds);
}

}  // namespace distbelief
