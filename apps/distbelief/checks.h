#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace distbelief {

// What an option's value must be, with messages like those of a run's options. Help and type names stay as they are.

CLI::Validator whole_number(std::int64_t least, std::int64_t most);
CLI::Validator one_of(std::vector<std::string> words);

}  // namespace distbelief
