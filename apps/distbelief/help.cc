#include "help.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/nearest_name.h"
#include "text_layout.h"

namespace distbelief {
namespace {

constexpr std::size_t kWidestName = 26;

/// "-n, --top K"; an argument without dashes by its name alone.
std::string shown_name(const CLI::Option& option) {
  if (option.get_positional()) {
    return option.get_name(true) + (option.get_items_expected_max() > 1 ? "..." : "");
  }
  std::string name;
  for (const std::string& letter : option.get_snames()) {
    name += "-" + letter + ", ";
  }
  for (const std::string& word : option.get_lnames()) {
    name += "--" + word;
  }
  if (option.get_items_expected_max() > 0 && !option.get_type_name().empty()) {
    name += " " + option.get_type_name();
  }
  return name;
}

std::string usage(const CLI::App& app) {
  if (app.get_parent() == nullptr) {
    return "distbelief COMMAND [options]";
  }
  std::string text = "distbelief " + app.get_name();
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) {
      const std::string name = shown_name(*option);
      text += option->get_required() ? " " + name : " [" + name + "]";
    }
  }
  return text + " [options]";
}

/// CLI11's messages, in the words of ours.
std::string plain_words(const CLI::ParseError& error, const std::string& who) {
  const std::string text = error.what();
  const std::string name = text.substr(0, text.find_first_of(": "));
  if (const std::size_t at = text.find(" required "); at != std::string::npos && text.ends_with(" missing")) {
    const std::size_t type = at + 10;
    return fmt::format("{} needs a value: {}", name, text.substr(type, text.size() - type - 8));
  }
  if (const std::size_t at = text.find("required but received "); at != std::string::npos) {
    return fmt::format("{} is given {} times, expected once", name, text.substr(at + 22));
  }
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
    return fmt::format("{} is missing; see {} --help", name, who);
  }
  return text;
}

}  // namespace

std::string Help::title(const std::string& text) const {
  return terminal_.color ? "\x1b[1m" + text + "\x1b[0m\n" : text + "\n";
}

namespace {

/// A name with many choices goes on in the next line where the terminal ends.
std::string broken_at_bars(const std::string& name, std::size_t indent, std::size_t width) {
  std::string text;
  std::size_t column = indent;
  for (std::size_t at = 0; at < name.size();) {
    const std::size_t end = std::min(name.find('|', at), name.size() - 1) + 1;
    if (column > indent && column + end - at > width) {
      text += '\n' + std::string(2 * indent, ' ');
      column = 2 * indent;
    }
    text += name.substr(at, end - at);
    column += end - at;
    at = end;
  }
  return text;
}

}  // namespace

std::string Help::entry(const std::string& name, const std::string& text, std::size_t column) const {
  std::string line = "  " + name;
  if (line.size() + 2 > column) {
    line = "  " + broken_at_bars(name, 2, terminal_.width) + "\n" + std::string(column, ' ');
  } else {
    line.resize(column, ' ');
  }
  return line + wrapped(text, column, terminal_.width) + "\n";
}

std::string Help::commands(const CLI::App& app) const {
  std::string text;
  std::string group;
  // Those without a group are for processes of a job, not for people.
  for (const CLI::App* command : app.get_subcommands([](const CLI::App* some) { return !some->get_group().empty(); })) {
    if (command->get_group() != group) {
      group = command->get_group();
      text += "\n" + title(group);
    }
    const std::string about = command->get_description();
    text += entry(command->get_name(), about.substr(0, about.find('\n')), 14);
  }
  return text;
}

std::string Help::options(const CLI::App& app) const {
  std::size_t column = 0;
  std::vector<std::string> groups = {"Arguments"};
  for (const CLI::Option* option : app.get_options()) {
    column = std::max(column, std::min(shown_name(*option).size(), kWidestName) + 4);
    const std::string group = option->get_positional() ? "Arguments" : option->get_group();
    if (std::find(groups.begin(), groups.end(), group) == groups.end()) {
      groups.push_back(group);
    }
  }
  // What every command has comes last.
  std::stable_partition(groups.begin(), groups.end(), [](const std::string& group) { return group != "Options"; });
  std::string text;
  for (const std::string& group : groups) {
    std::string lines;
    for (const CLI::Option* option : app.get_options()) {
      if ((option->get_positional() ? "Arguments" : option->get_group()) == group) {
        lines += entry(shown_name(*option), option->get_description(), column);
      }
    }
    text += lines.empty() ? "" : "\n" + title(group) + lines;
  }
  return text;
}

std::string Help::make_help(const CLI::App* app, std::string /*name*/, CLI::AppFormatMode /*mode*/) const {
  std::string text = wrapped(app->get_description(), 0, terminal_.width) + "\n\nUsage: ";
  text += wrapped(usage(*app), 7, terminal_.width) + "\n";
  text += commands(*app) + options(*app);
  if (!app->get_footer().empty()) {
    text += "\n" + wrapped_examples(app->get_footer(), terminal_.width) + "\n";
  }
  return text;
}

std::string explain(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  const CLI::App& command = chosen.empty() ? app : *chosen.front();
  const std::string who = chosen.empty() ? "distbelief" : "distbelief " + command.get_name();
  const std::vector<std::string> extra = app.remaining(true);
  if (dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr || extra.empty()) {
    return fmt::format("{}: {}", who, plain_words(error, who));
  }
  // The first that looks like an option: what follows it was most likely meant as its value.
  const auto option = std::find_if(extra.begin(), extra.end(), [](const auto& text) { return text.starts_with("-"); });
  const std::string wrong = option == extra.end() ? extra.front() : option->substr(0, option->find('='));
  std::vector<std::string> names;
  if (option != extra.end()) {
    for (const CLI::Option* known : command.get_options()) {
      for (const std::string& name : known->get_lnames()) {
        names.push_back("--" + name);
      }
    }
  } else if (chosen.empty()) {
    for (const CLI::App* known : app.get_subcommands([](const CLI::App*) { return true; })) {
      names.push_back(known->get_name());
    }
  }
  const std::vector<std::string_view> views(names.begin(), names.end());
  const char* what = option != extra.end() ? "there is no option"
                     : chosen.empty()      ? "there is no command"
                                           : "unexpected argument";
  std::string meant = did_you_mean(wrong, views);
  return fmt::format("{}: {} '{}'{}", who, what, wrong, meant.empty() ? "; see " + who + " --help" : meant);
}

}  // namespace distbelief
