#pragma once

#include <string>

namespace distbelief {

/// A JSON value of nlohmann's library as text. Names that people give to classes, files and folders may be any bytes:
/// what is not UTF-8 becomes U+FFFD, where dump() by itself would throw. `indent`: -1 for one line.
template <typename Json>
std::string json_text(const Json& value, int indent = -1) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace distbelief
