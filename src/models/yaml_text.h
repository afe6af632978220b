#pragma once

#include <yaml-cpp/yaml.h>

#include <string>
#include <string_view>

namespace distbelief {

/// The one document in a text. Throws FileError with file and line: no YAML, no document or several, too long.
YAML::Node load_yaml(std::string_view text, const std::string& file);

/// From 1; 0 when the place of a node is not known.
int yaml_line(const YAML::Node& node);

}  // namespace distbelief
