#include "base/process_identity.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <optional>
#include <sstream>

namespace distbelief {
namespace {

struct Stat {
  std::int64_t pid = 0;
  char state = '?';
  std::uint64_t started = 0;
};

/// From /proc/WHO/stat; nothing when there is no such process, or it cannot be read.
std::optional<Stat> read_stat(const std::string& who) {
  std::ifstream file("/proc/" + who + "/stat");
  std::string text;
  if (!std::getline(file, text)) {
    return std::nullopt;
  }
  const auto name_end = text.rfind(')');  // a program's name may hold spaces and parentheses
  if (name_end == std::string::npos) {
    return std::nullopt;
  }
  Stat stat;
  std::istringstream(text) >> stat.pid;
  std::istringstream fields(text.substr(name_end + 1));
  fields >> stat.state;
  std::string skipped;
  for (int field = 4; field < 22; ++field) {  // proc(5): the state is field 3, the start time field 22
    fields >> skipped;
  }
  fields >> stat.started;
  return fields ? std::optional(stat) : std::nullopt;
}

std::optional<Stat> read_stat(std::int64_t pid) { return read_stat(std::to_string(pid)); }

/// 0 when /proc is not there, or is of another pid namespace, whose numbers are others.
std::uint64_t find_host() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  struct stat pid_namespace {};
  const std::optional<Stat> self = read_stat("self");
  if (!std::getline(file, boot) || ::stat("/proc/self/ns/pid", &pid_namespace) != 0 || !self ||
      self->pid != ::getpid()) {
    return 0;
  }
  // FNV-1a: all processes must get the same number, whatever their standard library hashes like.
  std::uint64_t hash = 14695981039346656037U;
  for (const char c : boot + ":" + std::to_string(pid_namespace.st_ino)) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  }
  return hash;
}

bool has_ended(const Stat& stat) { return stat.state == 'Z' || stat.state == 'X'; }

bool has_no_number(std::int64_t pid) { return ::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH; }

}  // namespace

std::string ProcessIdentity::text() const { return fmt::format("{} {} {}", host, started, pid); }

ProcessIdentity ProcessIdentity::parse(std::string_view text) {
  ProcessIdentity process;
  std::istringstream fields{std::string(text)};
  fields >> process.host >> process.started >> process.pid;
  return fields && process.pid > 0 ? process : ProcessIdentity{};
}

ProcessIdentity identify_this_process() {
  const auto stat = read_stat("self");
  return stat ? ProcessIdentity{find_host(), stat->started, ::getpid()} : ProcessIdentity{};
}

ProcessSight look_for(const ProcessIdentity& process) {
  if (process.host == 0 || process.host != find_host()) {
    return ProcessSight::unseen;
  }
  if (const auto stat = read_stat(process.pid)) {
    return stat->started != process.started || has_ended(*stat) ? ProcessSight::gone : ProcessSight::runs;
  }
  // When it is not readable, that alone proves nothing.
  return has_no_number(process.pid) ? ProcessSight::gone : ProcessSight::unseen;
}

bool is_gone(pid_t pid) {
  const auto stat = read_stat(pid);
  return stat ? has_ended(*stat) : has_no_number(pid);
}

}  // namespace distbelief
