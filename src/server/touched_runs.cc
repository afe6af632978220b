#include "server/touched_runs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"
#include "tensor/vector_ops.h"

namespace distbelief {
namespace {

constexpr std::size_t kFewRows = 256;
constexpr unsigned kDigitBits = 11;

/// Rows are not negative. By digits, last one first: a batch has thousands of rows, and comparing them would take
/// longer than computing with them.
void sort_rows(std::vector<std::int32_t>& rows, std::vector<std::int32_t>& other) {
  if (rows.size() < kFewRows) {
    std::ranges::sort(rows);
    return;
  }
  const auto most = static_cast<std::uint32_t>(std::ranges::max(rows));
  other.resize(rows.size());
  for (unsigned shift = 0; shift < 32 && (most >> shift) != 0; shift += kDigitBits) {
    const auto digit = [shift](std::int32_t row) {
      return (static_cast<std::uint32_t>(row) >> shift) & ((1U << kDigitBits) - 1);
    };
    std::array<std::uint32_t, 1U << kDigitBits> next = {};
    for (const std::int32_t row : rows) {
      ++next[digit(row)];
    }
    std::uint32_t sum = 0;
    for (std::uint32_t& count : next) {
      sum += std::exchange(count, sum);
    }
    for (const std::int32_t row : rows) {
      other[next[digit(row)]++] = row;
    }
    std::swap(rows, other);
  }
}

}  // namespace

TouchedRuns::TouchedRuns(const ParameterTable& table, const BlockMap& map, std::span<const std::vector<int>> blocks)
    : table_(table), map_(map), owners_(map.blocks().size()), everything_(blocks.size()), servers_(blocks.size()) {
  check(table.size() <= std::numeric_limits<std::uint32_t>::max(), "places of runs have 32 bits");
  for (const ParameterEntry& entry : table.entries()) {
    if (!entry.frozen) {
      entries_.push_back(&entry);
    }
  }
  std::ranges::sort(entries_, {}, [](const ParameterEntry* entry) { return entry->range.begin; });
  for (std::size_t server = 0; server < blocks.size(); ++server) {
    OfServer& all = everything_[server];
    for (const int number : blocks[server]) {
      const Block& block = map.blocks()[static_cast<std::size_t>(number)];
      owners_[static_cast<std::size_t>(number)] = {server, static_cast<std::uint32_t>(all.floats)};
      all.runs.push_back({static_cast<std::uint32_t>(all.floats), static_cast<std::uint32_t>(block.range.size())});
      all.places.push_back(block.range.begin);
      all.floats += static_cast<std::size_t>(block.range.size());
      all.optimized += block.averaged ? 0 : 1;
    }
  }
}

void TouchedRuns::find(std::span<const TouchedRows> touched) {
  flat_.clear();
  const std::int32_t* last_rows = nullptr;  // layers have several parameters with the same rows
  for (const ParameterEntry* entry : entries_) {
    if (entry->spec.row_floats == 0) {
      append(entry->range.begin, entry->range.end);
      continue;
    }
    const auto found = std::ranges::find_if(touched, [&](const TouchedRows& one) { return one.parameter == entry; });
    if (found == touched.end() || found->rows.empty()) {
      continue;
    }
    if (found->rows.data() != last_rows) {
      last_rows = found->rows.data();
      sorted_.assign(found->rows.begin(), found->rows.end());
      sort_rows(sorted_, other_);
    }
    for (const std::int32_t row : sorted_) {
      const std::int64_t begin = found->offset(row);
      append(begin, begin + found->row_floats());
    }
  }
  cut();
}

void TouchedRuns::append(std::int64_t begin, std::int64_t end) {
  if (!flat_.empty() && flat_.back().end() == static_cast<std::uint64_t>(begin)) {
    flat_.back().count += static_cast<std::uint32_t>(end - begin);
  } else {
    flat_.push_back({static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end - begin)});
  }
}

void TouchedRuns::cut() {
  for (OfServer& server : servers_) {
    server.runs.clear();
    server.places.clear();
    server.floats = 0;
    server.optimized = 0;
  }
  std::size_t number = 0;
  for (const FloatRun& run : flat_) {
    const auto end = static_cast<std::int64_t>(run.end());
    for (std::int64_t begin = run.begin; begin < end;) {
      while (map_.blocks()[number].range.end <= begin) {
        ++number;
      }
      const Block& block = map_.blocks()[number];
      const Owner& owner = owners_[number];
      OfServer& server = servers_[owner.server];
      const std::int64_t count = std::min(end, block.range.end) - begin;
      server.runs.push_back(
          {owner.first + static_cast<std::uint32_t>(begin - block.range.begin), static_cast<std::uint32_t>(count)});
      server.places.push_back(begin);
      server.floats += static_cast<std::size_t>(count);
      server.optimized += block.averaged ? 0 : 1;
      begin += count;
    }
  }
}

double TouchedRuns::norm(std::span<const float> gradient) const {
  double squares = 0;
  for (const FloatRun& run : flat_) {
    const std::int64_t end = std::min(static_cast<std::int64_t>(run.end()), table_.optimized_size());
    if (run.begin < end) {
      squares += square_sum(gradient.data() + run.begin, end - run.begin);
    }
  }
  return std::sqrt(squares);
}

}  // namespace distbelief
