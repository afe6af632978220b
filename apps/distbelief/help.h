#pragma once

#include <CLI/CLI.hpp>

#include "commands.h"

namespace distbelief {

/// The help of the program and of each command: usage, what it does, arguments, options in groups, examples.
class Help : public CLI::Formatter {
 public:
  explicit Help(const Terminal& terminal) : terminal_(terminal) {}
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override;

 private:
  std::string title(const std::string& text) const;
  /// "  name  text", the text wrapped; names that are too long have a line of their own.
  std::string entry(const std::string& name, const std::string& text, std::size_t column) const;
  std::string commands(const CLI::App& app) const;
  std::string options(const CLI::App& app) const;

  const Terminal& terminal_;
};

/// The one line for arguments that cannot be understood, with the nearest name for one that does not exist.
std::string explain(const CLI::App& app, const CLI::ParseError& error);

}  // namespace distbelief
