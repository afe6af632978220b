#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace distbelief {

/// The different ones among the rows that a batch names, found in a time that does not depend on how many rows there
/// are. One thread.
class RowSet {
 public:
  /// Rows are below `count`.
  explicit RowSet(std::int64_t count) : seen_(static_cast<std::size_t>(count)) {}

  /// In the order in which they first come; valid until the next call.
  std::span<const std::int32_t> distinct(std::span<const std::int32_t> rows) {
    if (++round_ == 0) {  // after 2^32 batches old marks could be taken for new ones
      std::ranges::fill(seen_, 0U);
      round_ = 1;
    }
    distinct_.clear();
    for (const std::int32_t row : rows) {
      std::uint32_t& seen = seen_[static_cast<std::size_t>(row)];
      if (seen != round_) {
        seen = round_;
        distinct_.push_back(row);
      }
    }
    return distinct_;
  }

 private:
  std::vector<std::uint32_t> seen_;  ///< by row: the round that last had it
  std::uint32_t round_ = 0;
  std::vector<std::int32_t> distinct_;
};

}  // namespace distbelief
