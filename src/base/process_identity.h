#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace distbelief {

/// Which process of which machine: two are equal only if they are the same process, and pid numbers that are given out
/// again do not confuse it. Plain bytes, so that ranks can exchange it.
struct ProcessIdentity {
  std::uint64_t host = 0;     ///< of the machine since its last boot, and of its pid namespace; 0: not known
  std::uint64_t started = 0;  ///< in clock ticks since boot
  std::int64_t pid = 0;
  friend bool operator==(const ProcessIdentity&, const ProcessIdentity&) = default;

  /// For messages; parse() takes back what text() gives, and makes one that nobody has seen of anything else.
  std::string text() const;
  static ProcessIdentity parse(std::string_view text);
};

/// This process. host is 0 when the system does not tell.
ProcessIdentity identify_this_process();

enum class ProcessSight : std::uint8_t {
  runs,
  gone,    ///< or a zombie
  unseen,  ///< it is elsewhere, or the system does not tell
};
/// What is to be seen of it from here.
ProcessSight look_for(const ProcessIdentity& process);

/// No process has this pid here, or only a zombie.
bool is_gone(pid_t pid);

}  // namespace distbelief
