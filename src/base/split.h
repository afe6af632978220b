#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace distbelief {

/// What stands between the separators: always one more than there are of them, empty ones too.
inline std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace distbelief
