#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace distbelief {

/// JSON of nlohmann's library, of one kind for all of the program: keys stay in the order in which they were given, and
/// finding one takes as long as there are keys. Reading and writing are compiled once, in json.cc.
using Json = nlohmann::ordered_json;
/// What reading, and asking a value for what it has not, throws.
using JsonError = Json::exception;

/// Throws JsonError when `text` is not JSON.
Json parse_json(std::string_view text);
/// A value that is_discarded() when `text` is not JSON.
Json try_parse_json(std::string_view text);

/// Names that people give to classes, files and folders may be any bytes: what is not UTF-8 becomes U+FFFD, where
/// dump() by itself would throw. `indent`: -1 for one line.
std::string json_text(const Json& value, int indent = -1);

Json number_or_null(const std::optional<double>& value);

}  // namespace distbelief
