#include "metrics/machine.h"

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/file.h"

namespace distbelief {
namespace {

constexpr std::string_view kInteresting[] = {"sse4_2",      "avx",         "f16c",     "fma",      "avx2",
                                             "avx512f",     "avx512bw",    "avx512vl", "avx_vnni", "avx512_vnni",
                                             "avx512_bf16", "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16"};

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  return begin == std::string_view::npos ? "" : text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

/// Calls visit(name, value) for each line "name<separator>value".
template <typename Visit>
void for_each_pair(std::string_view text, char separator, Visit visit) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    if (const std::size_t at = line.find(separator); at != std::string_view::npos) {
      visit(trimmed(line.substr(0, at)), trimmed(line.substr(at + 1)));
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

/// Empty when it cannot be read: facts of the machine are never worth a failure.
std::string contents_of(const char* path) {
  try {
    return read_file(path);
  } catch (const FileError&) {
    return "";
  }
}

}  // namespace

void read_cpuinfo(std::string_view text, Machine& machine) {
  std::set<std::pair<std::string, std::string>> cores;  // package, core
  std::string package;
  std::set<std::string_view> flags;
  for_each_pair(text, ':', [&](std::string_view name, std::string_view value) {
    if (name == "model name" && machine.cpu.empty()) {
      machine.cpu = value;
    } else if (name == "physical id") {
      package = value;
    } else if (name == "core id") {
      cores.emplace(package, value);
    } else if (name == "flags" && flags.empty()) {
      while (!value.empty()) {
        const std::size_t end = std::min(value.find(' '), value.size());
        flags.insert(value.substr(0, end));
        value.remove_prefix(std::min(end + 1, value.size()));
      }
    }
  });
  machine.cores = static_cast<int>(cores.size());
  for (const std::string_view feature : kInteresting) {
    if (flags.contains(feature)) {
      machine.features.emplace_back(feature);
    }
  }
}

std::uint64_t kilobytes_of(std::string_view text, std::string_view name) {
  std::uint64_t kilobytes = 0;
  for_each_pair(text, ':', [&](std::string_view key, std::string_view value) {
    if (key == name) {
      std::from_chars(value.data(), value.data() + value.size(), kilobytes);
    }
  });
  return kilobytes * 1024;
}

std::string system_name(std::string_view os_release) {
  std::string found;
  for_each_pair(os_release, '=', [&](std::string_view key, std::string_view value) {
    if (key == "PRETTY_NAME") {
      if (value.size() >= 2 && value.front() == '"' && value.back() == '"') {
        value = value.substr(1, value.size() - 2);
      }
      found = value;
    }
  });
  return found;
}

Machine this_machine() {
  Machine machine;
  utsname names{};
  if (::uname(&names) == 0) {
    machine.host = names.nodename;
    machine.kernel = std::string(names.sysname) + " " + names.release;
  }
  machine.system = system_name(contents_of("/etc/os-release"));
  read_cpuinfo(contents_of("/proc/cpuinfo"), machine);
  cpu_set_t allowed;
  machine.threads = ::sched_getaffinity(0, sizeof allowed, &allowed) == 0
                        ? CPU_COUNT(&allowed)
                        : static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  if (machine.cores == 0) {
    machine.cores = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  }
  machine.memory_bytes = kilobytes_of(contents_of("/proc/meminfo"), "MemTotal");
  return machine;
}

std::uint64_t peak_memory_bytes() { return kilobytes_of(contents_of("/proc/self/status"), "VmHWM"); }

}  // namespace distbelief
