#include "transport/mpi/process_identity.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>

namespace distbelief {
namespace {

struct Stat {
  char state = '?';
  std::uint64_t started = 0;
};

/// From /proc/PID/stat; nothing when there is no such process.
std::optional<Stat> read_stat(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  if (!std::getline(file, text)) {
    return std::nullopt;
  }
  const auto name_end = text.rfind(')');  // a program's name may hold spaces and parentheses
  if (name_end == std::string::npos) {
    return std::nullopt;
  }
  std::istringstream fields(text.substr(name_end + 1));
  Stat stat;
  fields >> stat.state;
  std::string skipped;
  for (int field = 4; field < 22; ++field) {  // proc(5): the state is field 3, the start time field 22
    fields >> skipped;
  }
  fields >> stat.started;
  return fields ? std::optional(stat) : std::nullopt;
}

/// 0 when /proc is not there or not ours.
std::uint64_t this_host() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  struct stat pid_namespace {};
  if (!std::getline(file, boot) || ::stat("/proc/self/ns/pid", &pid_namespace) != 0) {
    return 0;
  }
  // FNV-1a: all ranks must get the same number, whatever their standard library hashes like.
  std::uint64_t hash = 14695981039346656037U;
  for (const char c : boot + ":" + std::to_string(pid_namespace.st_ino)) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  }
  return hash;
}

}  // namespace

ProcessIdentity identify_this_process() {
  const auto stat = read_stat(::getpid());
  return stat ? ProcessIdentity{this_host(), stat->started, ::getpid()} : ProcessIdentity{};
}

bool is_gone(pid_t pid) {
  const auto stat = read_stat(pid);
  // When it is not readable, that alone proves nothing.
  return stat ? stat->state == 'Z' || stat->state == 'X' : ::kill(pid, 0) != 0 && errno == ESRCH;
}

bool is_certainly_dead(const ProcessIdentity& process) {
  if (process.host == 0 || process.host != this_host()) {
    return false;
  }
  const auto pid = static_cast<pid_t>(process.pid);
  if (const auto stat = read_stat(pid); stat && stat->started != process.started) {
    return true;
  }
  return is_gone(pid);
}

}  // namespace distbelief
