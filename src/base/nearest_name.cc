#include "base/nearest_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

namespace distbelief {

namespace {
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}
}  // namespace

std::string_view nearest_name(std::string_view wanted, std::span<const std::string_view> names) {
  std::string_view best;
  std::size_t least = std::numeric_limits<std::size_t>::max();
  for (const std::string_view name : names) {
    const std::size_t distance = edit_distance(wanted, name);
    if (distance < least) {
      least = distance;
      best = name;
    }
  }
  return best;
}

bool is_misspelling(std::string_view written, std::string_view name) {
  return edit_distance(written, name) <= std::max<std::size_t>(2, written.size() / 2);
}

std::string did_you_mean(std::string_view wanted, std::span<const std::string_view> names) {
  const std::string_view best = nearest_name(wanted, names);
  return best.empty() || !is_misspelling(wanted, best) ? "" : fmt::format("; did you mean '{}'?", best);
}

std::string listed(std::span<const std::string_view> names) {
  std::string text;
  for (const std::string_view name : names) {
    text.append(text.empty() ? "" : ", ").append(name);
  }
  return text;
}

}  // namespace distbelief
