#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace distbelief {

/// What a program prints on standard output, at most 64 KiB of it. Nothing when it cannot be started, fails, or takes
/// longer than the deadline: then it is ended. `arguments[0]` is looked for in PATH.
std::optional<std::string> output_of(const std::vector<std::string>& arguments, std::chrono::milliseconds deadline);

}  // namespace distbelief
