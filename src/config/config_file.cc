#include <set>

#include "base/error.h"
#include "base/file.h"
#include "config/run_config.h"
#include "models/layer_attributes.h"
#include "models/yaml_text.h"

namespace distbelief {
namespace {

std::string place(const std::string& name, const YAML::Node& node) {
  return yaml_line(node) == 0 ? name : fmt::format("{}:{}", name, yaml_line(node));
}

/// A scalar as it is; a list as "a,b"; a map as "k=v,l=w". Throws InputError for anything deeper.
std::string flat_value(const YAML::Node& node, int depth = 0) {
  if (node.IsScalar()) {
    return node.Scalar();
  }
  std::string text;
  const bool list = node.IsSequence() && depth < 2;
  const bool map = node.IsMap() && depth < 1;
  if (!list && !map && !node.IsNull()) {
    throw InputError("expected a plain value");
  }
  if (list) {
    for (const YAML::Node& part : node) {
      text += (text.empty() ? "" : ",") + flat_value(part, 2);
    }
  } else if (map) {
    for (const auto& part : node) {
      text += (text.empty() ? "" : ",") + flat_value(part.first, 2) + "=" + flat_value(part.second, 1);
    }
  }
  return text;
}

}  // namespace

void apply_config_text(RunConfig& config, const std::string& text, const std::string& name) {
  const YAML::Node root = load_yaml(text, name);
  if (root.IsNull()) {
    return;
  }
  if (!root.IsMap()) {
    throw InputError(fmt::format("{}: expected lines of 'key: value'", place(name, root)));
  }
  std::set<std::string> keys;
  for (const auto& entry : root) {
    const std::string where = place(name, entry.first);
    if (!entry.first.IsScalar()) {
      throw InputError(fmt::format("{}: expected a key", where));
    }
    const std::string key = entry.first.Scalar();
    if (!keys.insert(key).second) {
      throw InputError(one_line(fmt::format("{}: key '{}': it was there before; expected each once", where, key)));
    }
    try {
      set_option(config, key, flat_value(entry.second), where);
    } catch (const InputError& error) {
      const std::string message = error.what();
      throw InputError(
          one_line(message.starts_with(where) ? message : fmt::format("{}: key '{}': {}", where, key, message)));
    }
  }
}

void apply_config_file(RunConfig& config, const std::filesystem::path& file) {
  apply_config_text(config, read_file(file), file.string());
}

}  // namespace distbelief
