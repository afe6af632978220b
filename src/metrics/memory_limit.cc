#include "metrics/memory_limit.h"

#include <sys/resource.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/file.h"
#include "metrics/machine.h"

namespace distbelief {
namespace {

/// 0 when it cannot be read or is no number: then there is no limit.
std::uint64_t number_in(const std::filesystem::path& path) {
  try {
    const std::string text = read_file(path);
    std::uint64_t number = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc() ? number : 0;
  } catch (const FileError&) {
    return 0;
  }
}

/// The smaller of two, of which 0 is none.
std::uint64_t smaller(std::uint64_t a, std::uint64_t b) { return a == 0 || (b != 0 && b < a) ? b : a; }

std::uint64_t user_limit(decltype(RLIMIT_AS) resource) {
  rlimit limit = {};
  return ::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ? 0 : limit.rlim_cur;
}

}  // namespace

std::uint64_t control_group_limit(std::string_view cgroups, const std::filesystem::path& root) {
  std::uint64_t least = 0;
  while (!cgroups.empty()) {
    const std::size_t end = std::min(cgroups.find('\n'), cgroups.size());
    const std::string_view line = cgroups.substr(0, end);
    cgroups.remove_prefix(std::min(end + 1, cgroups.size()));
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first == std::string_view::npos ? first : first + 1);
    if (second == std::string_view::npos || line.substr(second + 1).empty() || line[second + 1] != '/') {
      continue;
    }
    const std::string_view controllers = line.substr(first + 1, second - first - 1);  // none: the second version
    if (!controllers.empty() && controllers != "memory") {
      continue;
    }
    const std::filesystem::path top = controllers.empty() ? root : root / "memory";
    const char* const file = controllers.empty() ? "memory.max" : "memory.limit_in_bytes";
    std::filesystem::path group = line.substr(second + 2);
    while (true) {
      least = smaller(least, number_in(top / group / file));
      if (group.empty()) {
        break;
      }
      group = group.parent_path();
    }
  }
  return least;
}

std::uint64_t memory_of_a_process(int sharers) {
  std::uint64_t together = this_machine().memory_bytes;
  try {
    together = smaller(together, control_group_limit(read_file("/proc/self/cgroup"), "/sys/fs/cgroup"));
  } catch (const FileError&) {
    // Then nothing is known of groups.
  }
  const std::uint64_t each = together / static_cast<std::uint64_t>(std::max(1, sharers));
  return smaller(each, smaller(user_limit(RLIMIT_AS), user_limit(RLIMIT_DATA)));
}

}  // namespace distbelief
