#include "cluster/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/check.h"
#include "base/error.h"

namespace distbelief {
namespace {

/// posix_spawn's two bags of wishes.
struct SpawnPlan {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;

  SpawnPlan() {
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawnattr_init(&attributes);
  }
  ~SpawnPlan() {
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;

  /// `input`: a descriptor to read from, or -1.
  void connect(int input, const ProcessSpec& spec) {
    if (input >= 0) {
      ::posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
    } else {
      ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    }
    if (!spec.shows_output) {
      const char* const log = spec.log.empty() ? "/dev/null" : spec.log.c_str();
      ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log, O_WRONLY | O_CREAT | O_APPEND, 0644);
      ::posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
    }
    ::posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
  }

  /// A group of its own, and signals as a fresh program expects them, whatever this one does with its own.
  void begin_afresh() {
    sigset_t none;
    sigset_t all;
    ::sigemptyset(&none);
    ::sigfillset(&all);
    ::posix_spawnattr_setpgroup(&attributes, 0);
    ::posix_spawnattr_setsigmask(&attributes, &none);
    ::posix_spawnattr_setsigdefault(&attributes, &all);
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
};

struct InputPipe {
  FileDescriptor theirs;
  FileDescriptor ours;
};

/// A pipe that holds the text already.
InputPipe make_input(const ProcessSpec& spec) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    throw Error(fmt::format("{}: no pipe for its input: {}", spec.name, std::strerror(errno)));
  }
  InputPipe made = {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
  ::fcntl(ends[1], F_SETPIPE_SZ, ProcessSpec::kMostInput);
  ::fcntl(ends[1], F_SETFL, O_NONBLOCK);
  const ssize_t written = ::write(ends[1], spec.input->data(), spec.input->size());
  if (written != static_cast<ssize_t>(spec.input->size())) {
    throw Error(fmt::format("{}: its input of {} bytes does not fit into a pipe", spec.name, spec.input->size()));
  }
  return made;
}

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> result;
  for (const std::string& word : words) {
    result.push_back(const_cast<char*>(word.c_str()));  // posix_spawn takes char*, and changes nothing
  }
  result.push_back(nullptr);
  return result;
}

}  // namespace

ChildProcess::ChildProcess(const ProcessSpec& spec) {
  check(!spec.argv.empty(), "a process without a program");
  SpawnPlan plan;
  InputPipe input = spec.input ? make_input(spec) : InputPipe{};
  plan.connect(input.theirs.get(), spec);
  plan.begin_afresh();
  const auto argv = pointers(spec.argv);
  const auto environment = pointers(spec.environment);
  const int error = ::posix_spawnp(&pid_, argv[0], &plan.actions, &plan.attributes, argv.data(), environment.data());
  if (error != 0) {
    pid_ = -1;
    throw Error(fmt::format("{}: cannot start {} with its output in {}: {}", spec.name, spec.argv[0], spec.log.string(),
                            std::strerror(error)));
  }
  input_ = std::move(input.ours);
  // No race: until it is reaped here, the number is its own. (Debian 12's <sys/pidfd.h> is not for C++.)
  pidfd_ = FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  if (!pidfd_) {
    const int reason = errno;
    signal(SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    throw Error(fmt::format("{}: cannot watch process {}: {}", spec.name, pid_, std::strerror(reason)));
  }
}

ChildProcess::~ChildProcess() {
  if (!end_) {
    signal(SIGKILL);
    // A killed process ends, unless it hangs in the kernel on a device; then it is the system's to reap.
    static_cast<void>(wait(Clock::now() + std::chrono::seconds(10)));
  }
}

std::optional<ProcessEnd> ChildProcess::reap() {
  if (end_) {
    return end_;
  }
  siginfo_t info{};
  const auto peek = static_cast<idtype_t>(P_PIDFD);
  if (::waitid(peek, static_cast<id_t>(pidfd_.get()), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) {
    return std::nullopt;
  }
  signal(SIGKILL);  // to the rest of the group, as long as the number of the dead one keeps it from meaning others
  check(::waitid(peek, static_cast<id_t>(pidfd_.get()), &info, WEXITED) == 0, "a dead process that cannot be reaped");
  end_ = info.si_code == CLD_EXITED ? ProcessEnd{.exit_code = info.si_status} : ProcessEnd{.signal = info.si_status};
  return end_;
}

std::optional<ProcessEnd> ChildProcess::wait(Clock::time_point deadline) {
  for (;;) {
    if (const auto end = reap()) {
      return end;
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) {
      return std::nullopt;
    }
    pollfd wait{fd(), POLLIN, 0};
    ::poll(&wait, 1, static_cast<int>(std::min<std::int64_t>(left.count(), 1000)));
  }
}

void ChildProcess::signal(int number) {
  if (pid_ > 0 && !end_) {
    ::kill(-pid_, number);
  }
}

void die_with_parent(pid_t parent, int signal) {
  check(::prctl(PR_SET_PDEATHSIG, signal) == 0, "prctl(PR_SET_PDEATHSIG) failed");
  if (::getppid() != parent) {  // it died before the line above
    ::_exit(1);
  }
}

std::string last_lines(const std::filesystem::path& file, int lines) {
  constexpr std::streamoff kMostBytes = 16 * 1024;
  std::ifstream in(file, std::ios::binary | std::ios::ate);
  if (!in) {
    return {};
  }
  const std::streamoff size = in.tellg();
  const std::streamoff from = std::max<std::streamoff>(0, size - kMostBytes);
  in.seekg(from);
  std::string text(static_cast<std::size_t>(size - from), '\0');
  in.read(text.data(), size - from);
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(0, in.gcount())));
  if (from > 0) {
    text.erase(0, text.find('\n') == std::string::npos ? 0 : text.find('\n') + 1);  // begins in the middle of a line
  }
  if (!text.empty() && text.back() != '\n') {
    text += '\n';
  }
  std::size_t begin = text.size();
  for (int line = 0; line < lines && begin > 0; ++line) {
    const std::size_t before = begin < 2 ? std::string::npos : text.rfind('\n', begin - 2);
    begin = before == std::string::npos ? 0 : before + 1;
  }
  return text.substr(begin);
}

}  // namespace distbelief
