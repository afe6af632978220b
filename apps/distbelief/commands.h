#pragma once

#include <CLI/CLI.hpp>

#include "train/run_config.h"

namespace distbelief {

/// What every command may need of the outside world. The environment is read in main() only.
struct Terminal {
  bool is_terminal = false;
  bool color = false;
};

/// Each adds one subcommand; its callback sets `exit_code` and may throw Error.
void add_train_command(CLI::App& app, const Terminal& terminal, int& exit_code);

/// Adds all options of a run to a command; what the user gives is collected as (key, value) in order.
using GivenOptions = std::vector<std::pair<std::string, std::string>>;
void add_run_options(CLI::App& command, GivenOptions& given);

}  // namespace distbelief
