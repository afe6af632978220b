#include "cluster/process_end.h"

#include <fmt/format.h>

#include <cstring>

namespace distbelief {

std::string describe(const ProcessEnd& end) {
  if (end.signal == 0) {
    return fmt::format("exited with code {}", end.exit_code);
  }
  const char* name = ::sigabbrev_np(end.signal);
  return name == nullptr ? fmt::format("was killed by signal {}", end.signal)
                         : fmt::format("was killed by signal {} (SIG{})", end.signal, name);
}

}  // namespace distbelief
