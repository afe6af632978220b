#pragma once

#include <cstddef>
#include <string>

namespace distbelief {

/// For tests: how often a text has these words.
inline std::size_t count_of(const std::string& text, const std::string& what) {
  std::size_t count = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
    ++count;
  }
  return count;
}

}  // namespace distbelief
