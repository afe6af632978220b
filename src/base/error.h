#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <stdexcept>
#include <string>

namespace distbelief {

/// The run cannot go on. The message is one line that names the culprit (file, line, key, layer, shape or process) and
/// what was expected. Caught in main() and at thread roots only. exit_code() is what the program ends with.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, int exit_code = 1) : std::runtime_error(message), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

inline constexpr int kBadInputCode = 2;

/// What the user gave cannot be used: an option, a key, a file, a folder. Exit code 2.
class InputError : public Error {
 public:
  explicit InputError(const std::string& message) : Error(message, kBadInputCode) {}
};

/// Shapes that do not fit; names both.
class ShapeError : public InputError {
 public:
  using InputError::InputError;
};

/// A data, model or checkpoint file that cannot be read as what it claims to be; names the file and the place.
class FileError : public InputError {
 public:
  using InputError::InputError;
};

/// What a process ends with that could not go on for this.
inline int exit_code_of(const std::exception& error) {
  if (const auto* ours = dynamic_cast<const Error*>(&error)) {
    return ours->exit_code();
  }
  return dynamic_cast<const std::filesystem::filesystem_error*>(&error) != nullptr ? kBadInputCode : 1;
}

}  // namespace distbelief
