#pragma once

#include <string>

namespace distbelief {

/// How a process ended.
struct ProcessEnd {
  int exit_code = 0;
  int signal = 0;  ///< 0: it exited by itself

  bool ok() const { return exit_code == 0 && signal == 0; }
};

/// "exited with code 3", "was killed by signal 9 (SIGKILL)".
std::string describe(const ProcessEnd& end);

}  // namespace distbelief
