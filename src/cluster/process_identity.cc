#include "cluster/process_identity.h"

#include <fmt/format.h>

#include <fstream>
#include <sstream>

namespace distbelief {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

std::string process_identity(std::int64_t pid) {
  const std::string stat = first_line(fmt::format("/proc/{}/stat", pid));
  const std::size_t name_end = stat.rfind(')');  // a program's name may have anything in it but the end of a line
  if (name_end == std::string::npos) {
    return {};
  }
  std::istringstream fields(stat.substr(name_end + 1));
  std::string state;
  fields >> state;
  if (state == "Z" || state == "X") {
    return {};
  }
  constexpr int kUntilStart = 19;  // see proc(5): the state is the third, the beginning the 22nd
  std::string start;
  for (int i = 0; i < kUntilStart; ++i) {
    fields >> start;
  }
  return fields ? first_line("/proc/sys/kernel/random/boot_id") + " " + start : "";
}

}  // namespace distbelief
