#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace distbelief {

/// What the machine is, for reports and `doctor`. What cannot be found out is empty or 0.
struct Machine {
  std::string host;
  std::string system;                 ///< "Debian GNU/Linux 12 (bookworm)"
  std::string kernel;                 ///< "Linux 6.1.0"
  std::string cpu;                    ///< "AMD EPYC 7763 64-Core Processor"
  int threads = 0;                    ///< that this process may run on
  int cores = 0;                      ///< physical, of the whole machine; at most one a hardware thread
  std::vector<std::string> features;  ///< those of interest that it has: "avx2", "fma", ...
  std::uint64_t memory_bytes = 0;
};

/// Asks the system.
Machine this_machine();

/// The most memory this process ever held (VmHWM), in bytes.
std::uint64_t peak_memory_bytes();

/// Fills in cpu, cores and features from the text of /proc/cpuinfo.
void read_cpuinfo(std::string_view text, Machine& machine);

/// The value, in bytes, of a line "Name:   123 kB", as in /proc/meminfo and /proc/self/status; 0 without one.
std::uint64_t kilobytes_of(std::string_view text, std::string_view name);

/// The value of PRETTY_NAME in the text of /etc/os-release.
std::string system_name(std::string_view os_release);

}  // namespace distbelief
