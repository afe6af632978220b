#include "base/nearest_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

namespace distbelief {

namespace {
/// Letters to put in, to leave out, to change, and pairs of neighbours to swap.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::vector<std::size_t> above(row.size());  // these two: of the letters of `a` before
  std::vector<std::size_t> two_above(row.size());
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    two_above.swap(above);
    above = row;
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      row[j + 1] = std::min({above[j] + (a[i] == b[j] ? 0 : 1), above[j + 1] + 1, row[j] + 1});
      if (i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j]) {
        row[j + 1] = std::min(row[j + 1], two_above[j - 1] + 1);
      }
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
  const std::size_t letters = written.size() - std::min(written.find_first_not_of('-'), written.size());
  const std::size_t edits = edit_distance(written, name);
  return edits <= std::max<std::size_t>(1, letters / 3) && edits < std::max<std::size_t>(letters, 1);
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
