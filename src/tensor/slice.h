#pragma once

#include <cstdint>

namespace distbelief {

/// Places [begin, end) of an axis that has `whole` of them.
struct Slice {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t whole = 0;

  std::int64_t size() const { return end - begin; }
  friend bool operator==(const Slice&, const Slice&) = default;
};

}  // namespace distbelief
