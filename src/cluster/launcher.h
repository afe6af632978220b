#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "cluster/child_process.h"
#include "cluster/member.h"

namespace distbelief {

/// What the launcher adds to the environment of each process: its number, for JoinRequest::launch, and the process to
/// die with, for die_with_parent().
inline constexpr char kLaunchVariable[] = "DISTBELIEF_LAUNCH";
inline constexpr char kLauncherPidVariable[] = "DISTBELIEF_LAUNCHER_PID";

/// Starts the processes of a job on this machine, sees them end, starts them again or stops the others, and leaves
/// nothing behind: whatever happens to it, all of them end with it. One thread, which has to live as long as the
/// processes (die_with_parent() means threads), except for stop().
class Launcher {
 public:
  struct Options {
    std::chrono::milliseconds kill_after{2000};  ///< after SIGTERM
    std::string host = {};                       ///< for ProcessExit
    int log_lines = 20;                          ///< of LaunchResult::last_lines
    /// Called in run_until() for each process that ended: tell the coordinator (Member::report_exit).
    std::function<void(const ProcessExit&)> on_exit = {};
  };

  /// A process that has ended for good.
  struct Ended {
    std::string name = {};
    int pid = 0;
    ProcessEnd end = {};
    bool told_to_stop = false;
    int restarts = 0;  ///< how often it was started again before
  };
  struct Result {
    std::vector<Ended> ended;            ///< in order of their ends
    std::optional<std::size_t> culprit;  ///< in `ended`: the first that failed, without having been told to stop
    std::string last_lines;              ///< of the culprit's log

    /// "worker 1 (pid 4711) was killed by signal 9 (SIGKILL)"; empty without a culprit.
    std::string reason() const;
  };

  explicit Launcher(Options options);
  /// SIGKILL to all that are left.
  ~Launcher();
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  /// What becomes of the job when a process fails, and has been started again as often as allowed.
  enum class WhenLost : std::uint8_t { stop_all, others_go_on };
  /// When a process that fails is started again.
  struct Again {
    int times = 0;
    bool only_when_killed = false;            ///< not when it exited with a code: then it knew why
    std::vector<std::string> arguments = {};  ///< that it gets besides those of the first time
  };
  /// Returns its launch number, from 1 on. Throws Error when it cannot be started.
  std::uint64_t start(const ProcessSpec& spec, const Again& again, WhenLost when_lost = WhenLost::stop_all);
  std::uint64_t start(const ProcessSpec& spec) { return start(spec, Again()); }

  /// What start() will return next.
  std::uint64_t next_launch() const { return next_launch_; }

  /// SIGTERM to all, SIGKILL to those that are left later, in run_until(). Nothing is started again. Thread-safe, and
  /// may be called by a signal handler.
  void stop();

  /// SIGKILL to the process with this name; false when none runs.
  bool kill(const std::string& name);

  /// Handles what happens, until all have ended or the deadline. True when all have ended.
  [[nodiscard]] bool run_until(Clock::time_point deadline);
  int running() const;
  const Result& result() const { return result_; }

 private:
  struct Running {
    ProcessSpec spec;
    std::uint64_t launch = 0;
    Again again = {};
    int restarts = 0;
    WhenLost when_lost = WhenLost::stop_all;
    std::unique_ptr<ChildProcess> process = nullptr;
  };
  std::unique_ptr<ChildProcess> spawn(const Running& running) const;
  void handle_ends();
  void handle_end(Running& running, const ProcessEnd& end);
  void begin_stop();

  const Options options_;
  FileDescriptor wake_;
  std::atomic<bool> stop_asked_ = false;
  bool stopping_ = false;
  bool killed_ = false;
  Clock::time_point kill_at_ = {};
  std::uint64_t next_launch_ = 1;
  std::vector<Running> running_;
  Result result_;
};

}  // namespace distbelief
