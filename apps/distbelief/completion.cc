#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/print.h"
#include "checks.h"
#include "commands.h"
#include "data/open.h"
#include "models/zoo.h"
#include "params/update_rule.h"

namespace distbelief {
namespace {

/// What may stand where an option's value or an argument is expected.
struct Values {
  std::vector<std::string> words = {};
  bool files = false;
  bool folders = false;
};

Values values_of(const CLI::Option& option) {
  const std::string name = option.get_positional() ? option.get_name(true) : option.get_name(false, true);
  const std::string type = option.get_positional() ? name : option.get_type_name();
  const auto contains = [&](const char* part) { return type.find(part) != std::string::npos; };
  Values values{.words = offered_words(type)};
  values.files = contains("FILE") || contains("RUN") || contains("INPUT") || contains("SOURCE") || contains(".yaml");
  values.folders = contains("DIR");
  if (name == "--model" || name == "MODEL|FILE|RUN") {
    for (const ModelInfo& model : known_models()) {
      values.words.push_back(model.name);
    }
  } else if (name == "--data" || name == "INPUT" || name == "SOURCE") {
    for (const KnownData& data : known_data()) {
      values.words.push_back(data.name);
    }
  } else if (name == "--optimizer") {
    for (const std::string_view rule : rule_names()) {
      values.words.emplace_back(rule);
    }
  }
  return values;
}

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  std::vector<const CLI::App*> commands;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App* some) { return !some->get_group().empty(); })) {
    commands.push_back(command);
  }
  return commands;
}

bool takes_value(const CLI::Option& option) { return option.get_items_expected_max() > 0; }
bool repeats(const CLI::Option& option) { return option.get_items_expected_max() > 1; }

std::vector<std::string> dashed_names(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) {
    names.push_back("-" + name);
  }
  for (const std::string& name : option.get_lnames()) {
    names.push_back("--" + name);
  }
  return names;
}

Values argument_values(const CLI::App& command) {
  Values all;
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_positional()) {
      const Values values = values_of(*option);
      all.words.insert(all.words.end(), values.words.begin(), values.words.end());
      all.files = all.files || values.files;
    }
  }
  return all;
}

std::string bash_reply(const Values& values) {
  std::string reply = fmt::format("-W '{}'", fmt::join(values.words, " "));
  if (values.files) {
    reply += " -f";
  } else if (values.folders) {
    reply += " -d";
  }
  return fmt::format("COMPREPLY=($(compgen {} -- \"$current\"))", reply);
}

std::string bash_script(const CLI::App& app) {
  std::vector<std::string> names;
  std::string cases;
  for (const CLI::App* command : commands_of(app)) {
    names.push_back(command->get_name());
    std::vector<std::string> options;
    std::string values;
    for (const CLI::Option* option : command->get_options()) {
      if (option->get_positional()) {
        continue;
      }
      const std::vector<std::string> spelled = dashed_names(*option);
      options.insert(options.end(), spelled.begin(), spelled.end());
      if (takes_value(*option)) {
        values += fmt::format("        {}) {}; return ;;\n", fmt::join(spelled, "|"), bash_reply(values_of(*option)));
      }
    }
    cases += fmt::format(
        "    {0})\n      case \"$previous\" in\n{1}      esac\n"
        "      if [[ $current == -* ]]; then COMPREPLY=($(compgen -W '{2}' -- \"$current\"))\n"
        "      else {3}; fi ;;\n",
        command->get_name(), values, fmt::join(options, " "), bash_reply(argument_values(*command)));
  }
  return fmt::format(
      "# bash completion of distbelief; use it with: source <(distbelief completion bash)\n"
      "_distbelief() {{\n"
      "  local current=\"${{COMP_WORDS[COMP_CWORD]}}\" previous=\"${{COMP_WORDS[COMP_CWORD - 1]}}\"\n"
      "  if [[ $current == = ]]; then current=''\n"
      "  elif [[ $previous == = ]]; then previous=\"${{COMP_WORDS[COMP_CWORD - 2]}}\"; fi\n"
      "  if ((COMP_CWORD == 1)); then\n"
      "    COMPREPLY=($(compgen -W '{} --help --version' -- \"$current\"))\n"
      "    return\n"
      "  fi\n"
      "  case \"${{COMP_WORDS[1]}}\" in\n"
      "{}"
      "  esac\n"
      "}}\n"
      "complete -o filenames -F _distbelief distbelief\n",
      fmt::join(names, " "), cases);
}

/// Safe inside '...[ ]' of zsh's _arguments, and inside single quotes.
std::string escaped(std::string text, std::string_view signs) {
  text = text.substr(0, text.find('\n'));
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      out += (signs.find(c) == std::string_view::npos ? "" : "\\") + std::string(1, c);
    }
  }
  return out;
}

std::string zsh_action(const Values& values) {
  const std::string words = fmt::format("{}", fmt::join(values.words, " "));
  if (!values.files && !values.folders) {
    return words.empty() ? " " : "(" + words + ")";
  }
  const char* files = values.files ? "_files" : "_files -/";
  return words.empty() ? files : fmt::format("{{compadd -- {}; {}}}", words, files);
}

std::string zsh_script(const CLI::App& app) {
  std::string descriptions;
  std::string cases;
  for (const CLI::App* command : commands_of(app)) {
    descriptions += fmt::format("        '{}:{}'\n", command->get_name(), escaped(command->get_description(), ":"));
    std::string specs;
    for (const CLI::Option* option : command->get_options()) {
      if (option->get_positional()) {
        continue;
      }
      const std::string value = takes_value(*option) ? fmt::format(":{}:{}", escaped(option->get_type_name(), ":"),
                                                                   zsh_action(values_of(*option)))
                                                     : "";
      for (const std::string& name : dashed_names(*option)) {
        const char* again = repeats(*option) ? "*" : "";
        const char* joined = takes_value(*option) && name.starts_with("--") ? "=" : "";  // --lr=1 as well as --lr 1
        specs += fmt::format(" \\\n          '{}{}{}[{}]{}'", again, name, joined,
                             escaped(option->get_description(), "[]:"), value);
      }
    }
    specs += fmt::format(" \\\n          '*:argument:{}'", zsh_action(argument_values(*command)));
    cases += fmt::format("        {})\n          _arguments{} ;;\n", command->get_name(), specs);
  }
  return fmt::format(
      "#compdef distbelief\n"
      "# zsh completion of distbelief; use it with: source <(distbelief completion zsh)\n"
      "_distbelief() {{\n"
      "  local context state state_descr line\n"
      "  typeset -A opt_args\n"
      "  _arguments -C '(- *)--help[show help]' '(- *)--version[show the version]' \\\n"
      "    '1:command:->command' '*::argument:->argument'\n"
      "  case $state in\n"
      "    command)\n"
      "      local -a commands=(\n{}      )\n"
      "      _describe command commands ;;\n"
      "    argument)\n"
      "      case $line[1] in\n{}      esac ;;\n"
      "  esac\n"
      "}}\n"
      "if [[ $funcstack[1] == _distbelief ]]; then _distbelief \"$@\"; else compdef _distbelief distbelief; fi\n",
      descriptions, cases);
}

std::string fish_script(const CLI::App& app) {
  std::string text = "# fish completion of distbelief; use it with: distbelief completion fish | source\n";
  // Not __fish_seen_subcommand_from, which takes the value in "--split train" for the command, too.
  text +=
      "function __distbelief_command_is\n"
      "  set -l words (commandline -opc)\n"
      "  test \"$words[2]\" = $argv[1]\n"
      "end\n";
  text += "complete -c distbelief -n __fish_use_subcommand -f -l help -d 'show help'\n";
  text += "complete -c distbelief -n __fish_use_subcommand -f -l version -d 'show the version'\n";
  for (const CLI::App* command : commands_of(app)) {
    const std::string name = command->get_name();
    text += fmt::format("complete -c distbelief -n __fish_use_subcommand -f -a {} -d '{}'\n", name,
                        escaped(command->get_description(), ""));
    const std::string here = fmt::format("complete -c distbelief -n '__distbelief_command_is {}'", name);
    const Values arguments = argument_values(*command);
    text += arguments.files ? "" : here + " -f\n";
    text += arguments.words.empty() ? "" : fmt::format("{} -a '{}'\n", here, fmt::join(arguments.words, " "));
    for (const CLI::Option* option : command->get_options()) {
      if (option->get_positional()) {
        continue;
      }
      std::string line = here;
      for (const std::string& letter : option->get_snames()) {
        line += " -s " + letter;
      }
      for (const std::string& word : option->get_lnames()) {
        line += " -l " + word;
      }
      if (takes_value(*option)) {
        const Values values = values_of(*option);
        std::string words = fmt::format("{}", fmt::join(values.words, " "));
        if (values.folders && !values.files) {
          words += words.empty() ? "(__fish_complete_directories)" : " (__fish_complete_directories)";
        }
        line += values.files ? " -r -F" : " -x";
        line += words.empty() ? "" : fmt::format(" -a '{}'", words);
      }
      text += fmt::format("{} -d '{}'\n", line, escaped(option->get_description(), ""));
    }
  }
  return text;
}

}  // namespace

std::vector<std::string> offered_words(const std::string& type_name) {
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin < type_name.size();) {
    const std::size_t end = std::min(type_name.find('|', begin), type_name.size());
    const std::string word = type_name.substr(begin, end - begin);
    if (!word.empty() && word.find_first_not_of("abcdefghijklmnopqrstuvwxyz-") == std::string::npos) {
      words.push_back(word);
    }
    begin = end + 1;
  }
  return words;
}

void add_completion_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("completion", "Print a script that completes commands in your shell");
  command->group("This machine");
  const auto shell = std::make_shared<std::string>();  // shared with the callback
  command->add_option("bash|zsh|fish", *shell, "which shell")->required()->check(one_of({"bash", "zsh", "fish"}));
  command->footer(
      "Examples:\n"
      "  source <(distbelief completion bash)          in ~/.bashrc\n"
      "  source <(distbelief completion zsh)           in ~/.zshrc, after compinit\n"
      "  distbelief completion fish | source           in ~/.config/fish/config.fish");
  command->callback([shell, &app] {
    print_out("{}", *shell == "bash" ? bash_script(app) : *shell == "zsh" ? zsh_script(app) : fish_script(app));
  });
}

}  // namespace distbelief
