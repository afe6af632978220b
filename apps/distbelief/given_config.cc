#include "given_config.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

namespace distbelief {
namespace {

void add_run_option(CLI::App& command, GivenOptions& given, const RunOption& option) {
  static const RunConfig kDefaults;
  const std::string name = "--" + option.key;
  const std::string key = option.key;
  if (option.value.empty()) {
    command
        .add_flag_callback(
            name, [&given, key] { given.emplace_back(key, "true"); }, option.help)
        ->group(option.group);
    return;
  }
  std::string help = option.help;
  const std::string value = option.get(kDefaults);
  if (!value.empty() && value != "-1") {
    help += " [" + value + "]";
  }
  CLI::Option* added = command.add_option_function<std::string>(
      name, [&given, key](const std::string& text) { given.emplace_back(key, text); }, help);
  added->group(option.group)->allow_extra_args(false);
  added->type_name(option.choices.empty() ? option.value : fmt::format("{}", fmt::join(option.choices, "|")));
}

}  // namespace

void add_given_config(CLI::App& command, GivenConfig& given, const std::vector<std::string>& left_out) {
  command
      .add_option("run.yaml", given.config_file,
                  "a file of lines 'key: value'; each option below is a key, without its dashes")
      ->type_name("FILE");
  command.add_option("--set", given.sets, "set any key; may be given several times; options win over it")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false)
      ->group("Configuration");
  for (const RunOption& option : run_options()) {
    if (std::ranges::find(left_out, option.key) == left_out.end()) {
      add_run_option(command, given.options, option);
    }
  }
}

RunConfig resolve_given(RunConfig config, const GivenConfig& given) {
  if (!given.config_file.empty()) {
    apply_config_file(config, given.config_file);
  }
  for (const std::string& set : given.sets) {
    const std::size_t equals = set.find('=');
    if (equals == std::string::npos) {
      throw InputError(fmt::format("--set {}: expected KEY=VALUE", set));
    }
    set_option(config, set.substr(0, equals), set.substr(equals + 1), "--set " + set);
  }
  for (const auto& [key, value] : given.options) {
    set_option(config, key, value, "--" + key + " " + value);
  }
  return config;
}

}  // namespace distbelief
