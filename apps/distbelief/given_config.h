#pragma once

#include <string>
#include <vector>

#include "commands.h"

namespace distbelief {

/// (key, value) in the order in which they were given.
using GivenOptions = std::vector<std::pair<std::string, std::string>>;

/// What a user says of a run: a file, --set, and options, which win in this order.
struct GivenConfig {
  std::string config_file;
  std::vector<std::string> sets;
  GivenOptions options;

  bool empty() const { return config_file.empty() && sets.empty() && options.empty(); }
};

/// Adds all of it to a command, but for the options of these keys. `given` must outlive the command.
void add_given_config(CLI::App& command, GivenConfig& given, const std::vector<std::string>& left_out = {});

/// `config` with what was given on top. Throws InputError that names where it comes from.
RunConfig resolve_given(RunConfig config, const GivenConfig& given);

}  // namespace distbelief
