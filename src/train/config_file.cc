#include <yaml-cpp/yaml.h>

#include "base/error.h"
#include "base/file.h"
#include "train/run_config.h"

namespace distbelief {
namespace {

std::string place(const std::string& name, const YAML::Mark& mark) { return fmt::format("{}:{}", name, mark.line + 1); }

/// A scalar as it is; a list as "a,b"; a map as "k=v,l=w".
std::string flat_value(const YAML::Node& node, const std::string& where, const std::string& key) {
  const auto scalar = [&](const YAML::Node& part) {
    if (!part.IsScalar()) {
      throw InputError(fmt::format("{}: key '{}': expected a plain value", where, key));
    }
    return part.Scalar();
  };
  std::string text;
  if (node.IsNull()) {
    return text;
  }
  if (node.IsSequence()) {
    for (const YAML::Node& part : node) {
      text += (text.empty() ? "" : ",") + scalar(part);
    }
    return text;
  }
  if (node.IsMap()) {
    for (const auto& part : node) {
      text += (text.empty() ? "" : ",") + scalar(part.first) + "=" + scalar(part.second);
    }
    return text;
  }
  return scalar(node);
}

}  // namespace

void apply_config_text(RunConfig& config, const std::string& text, const std::string& name) {
  YAML::Node root;
  try {
    root = YAML::Load(text);
  } catch (const YAML::Exception& error) {
    throw InputError(fmt::format("{}: not YAML: {}", place(name, error.mark), error.msg));
  }
  if (root.IsNull()) {
    return;
  }
  if (!root.IsMap()) {
    throw InputError(fmt::format("{}: expected lines of 'key: value'", place(name, root.Mark())));
  }
  for (const auto& entry : root) {
    const std::string where = place(name, entry.first.Mark());
    if (!entry.first.IsScalar()) {
      throw InputError(fmt::format("{}: expected a key", where));
    }
    const std::string key = entry.first.Scalar();
    set_option(config, key, flat_value(entry.second, where, key), where);
  }
}

void apply_config_file(RunConfig& config, const std::filesystem::path& file) {
  apply_config_text(config, read_file(file), file.string());
}

}  // namespace distbelief
