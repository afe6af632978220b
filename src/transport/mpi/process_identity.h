#pragma once

#include <sys/types.h>

#include <cstdint>

namespace distbelief {

/// Which process of which machine: two are equal only if they are the same process, and pid numbers that are given out
/// again do not confuse it. Plain bytes, so that ranks can exchange it.
struct ProcessIdentity {
  std::uint64_t host = 0;     ///< of the machine since its last boot, and of its pid namespace
  std::uint64_t started = 0;  ///< in clock ticks since boot
  std::int64_t pid = 0;
  friend bool operator==(const ProcessIdentity&, const ProcessIdentity&) = default;
};

/// This process. host is 0 when the system does not tell.
ProcessIdentity identify_this_process();

/// No process has this pid here, or only a zombie.
bool is_gone(pid_t pid);

/// True when the process ran where we run, and is gone or a zombie. False when it lives, or lives elsewhere.
bool is_certainly_dead(const ProcessIdentity& process);

}  // namespace distbelief
