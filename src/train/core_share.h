#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace distbelief {

/// How many cores this process may use: what taskset, a control group or a batch system left it.
int usable_cores();

/// The same for processes of one machine that may use the same cores.
std::uint64_t usable_cores_digest();

/// Who shares the cores that this process may use.
struct CoreSharers {
  int workers = 1;
  int threads = 0;  ///< that each of them computes with; 0: as many as there are cores for it
  int servers = 0;  ///< parameter servers, which work on cores that the workers leave, if there is one for each
};

/// Who gets which cores, as "0-3", in the system's numbers.
struct CorePlan {
  /// Of each worker: nearly equal parts of neighbouring cores, in the order in which caches and memory lie. None when a
  /// part would have fewer cores than threads.
  std::vector<std::string> workers;
  /// What is left for servers and for the threads that move bytes, when workers need no more than their threads. Empty:
  /// nothing is, and servers go where a core is free.
  std::string spare;
};
CorePlan plan_cores(const CoreSharers& sharers);

/// Binds this process, with all threads that it has and will have. False where that is forbidden: the process is then
/// where the system puts it.
[[nodiscard]] bool bind_process(const std::string& cores);
/// The same for the calling thread alone.
bool bind_thread(const std::string& cores);

}  // namespace distbelief
