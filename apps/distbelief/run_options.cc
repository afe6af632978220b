#include <fmt/ranges.h>

#include "commands.h"

namespace distbelief {

void add_run_options(CLI::App& command, GivenOptions& given) {
  const RunConfig defaults;
  for (const RunOption& option : run_options()) {
    const std::string name = "--" + option.key;
    const std::string key = option.key;
    if (option.value.empty()) {
      command
          .add_flag_callback(
              name, [&given, key] { given.emplace_back(key, "true"); }, option.help)
          ->group(option.group);
      continue;
    }
    std::string help = option.help;
    const std::string value = option.get(defaults);
    if (!value.empty() && value != "-1") {
      help += " [" + value + "]";
    }
    CLI::Option* added = command.add_option_function<std::string>(
        name, [&given, key](const std::string& text) { given.emplace_back(key, text); }, help);
    added->group(option.group)->allow_extra_args(false);
    added->type_name(option.choices.empty() ? option.value : fmt::format("{}", fmt::join(option.choices, "|")));
  }
}

}  // namespace distbelief
