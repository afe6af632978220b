#pragma once

#include <sys/types.h>

#include <csignal>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "cluster/process_end.h"
#include "transport/socket/file_descriptor.h"

namespace distbelief {

/// What to start, and where its words go.
struct ProcessSpec {
  std::string name = {};                      ///< for people: "worker 1"
  std::vector<std::string> argv = {};         ///< argv[0] is looked for in PATH when it has no slash
  std::vector<std::string> environment = {};  ///< all of it, "KEY=VALUE"
  std::filesystem::path log = {};             ///< its standard output and error are appended here
  bool shows_output = false;                  ///< instead they are this process's own
  /// What it reads on its standard input, which then stays open and silent until this process ends or lets go of it: a
  /// program that watches its input ends with us, wherever it runs. At most kMostInput bytes. Without: /dev/null.
  std::optional<std::string> input = {};
  static constexpr std::size_t kMostInput = std::size_t{64} << 10;  // what a pipe holds
};

/// A process that this one started, in a process group of its own, so that a terminal's Ctrl-C is for us alone. Started
/// with posix_spawn, never fork: threads may run. It inherits nothing but its log and its input. One thread.
class ChildProcess {
 public:
  /// Throws Error that names the process and the system's reason.
  explicit ChildProcess(const ProcessSpec& spec);
  /// Kills it and its group if they still run, and always reaps: nothing is left behind.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  /// Becomes readable when the process ends.
  int fd() const { return pidfd_.get(); }

  /// How it ended; nothing while it runs. When it has ended, what is left of its group is killed.
  std::optional<ProcessEnd> reap();
  /// Waits for the end until the deadline.
  std::optional<ProcessEnd> wait(Clock::time_point deadline);
  /// To its whole group; nothing happens when it has been reaped.
  void signal(int number);

 private:
  pid_t pid_ = -1;
  FileDescriptor pidfd_;
  FileDescriptor input_;  // our end of ProcessSpec::input
  std::optional<ProcessEnd> end_;
};

/// To be called first thing in a process whose parent is `parent`: when that thread of the parent which started it
/// ends, however it does, this process gets `signal`; when the parent is gone already, it ends here and now.
void die_with_parent(pid_t parent, int signal = SIGKILL);

/// The last lines of a file, at most so many, each with its newline; empty when it cannot be read.
std::string last_lines(const std::filesystem::path& file, int lines);

}  // namespace distbelief
