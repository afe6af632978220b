#include "cluster/launcher.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

#include "base/check.h"
#include "base/error.h"

namespace distbelief {

std::string Launcher::Result::reason() const {
  if (!culprit) {
    return {};
  }
  const Ended& first = ended[*culprit];
  return fmt::format("{} (pid {}) {}", first.name, first.pid, describe(first.end));
}

Launcher::Launcher(Options options) : options_(std::move(options)), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  check(static_cast<bool>(wake_), "no eventfd");
}

Launcher::~Launcher() {
  for (Running& running : running_) {
    running.process->signal(SIGKILL);  // all first, so that the destructors wait for them at the same time
  }
}

std::uint64_t Launcher::start(const ProcessSpec& spec, const Again& again, WhenLost when_lost) {
  Running running{.spec = spec, .launch = next_launch_++, .again = again, .when_lost = when_lost};
  running.process = spawn(running);
  running_.push_back(std::move(running));
  return running_.back().launch;
}

std::unique_ptr<ChildProcess> Launcher::spawn(const Running& running) const {
  ProcessSpec spec = running.spec;
  if (running.restarts > 0) {
    spec.argv.insert(spec.argv.end(), running.again.arguments.begin(), running.again.arguments.end());
  }
  spec.environment.push_back(fmt::format("{}={}", kLaunchVariable, running.launch));
  spec.environment.push_back(fmt::format("{}={}", kLauncherPidVariable, ::getpid()));
  return std::make_unique<ChildProcess>(spec);
}

void Launcher::stop() {
  stop_asked_ = true;
  const std::uint64_t one = 1;
  static_cast<void>(!::write(wake_.get(), &one, sizeof one));  // full means that it is awake already
}

bool Launcher::kill(const std::string& name) {
  const auto found = std::ranges::find_if(running_, [&](const Running& running) { return running.spec.name == name; });
  if (found == running_.end()) {
    return false;
  }
  found->process->signal(SIGKILL);
  return true;
}

int Launcher::running() const { return static_cast<int>(running_.size()); }

bool Launcher::run_until(Clock::time_point deadline) {
  for (;;) {
    if (stop_asked_ && !stopping_) {
      begin_stop();
    }
    if (stopping_ && !killed_ && Clock::now() >= kill_at_) {
      killed_ = true;
      for (Running& running : running_) {
        running.process->signal(SIGKILL);
      }
    }
    handle_ends();
    if (running_.empty()) {
      return true;
    }
    const auto until = stopping_ && !killed_ ? std::min(deadline, kill_at_) : deadline;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    if (left <= 0) {
      if (until == deadline) {
        return false;
      }
      continue;
    }
    std::vector<pollfd> waits = {{wake_.get(), POLLIN, 0}};
    for (const Running& running : running_) {
      waits.push_back({running.process->fd(), POLLIN, 0});
    }
    ::poll(waits.data(), waits.size(), static_cast<int>(std::min<std::int64_t>(left, 60'000)));
    std::uint64_t ignored = 0;
    static_cast<void>(!::read(wake_.get(), &ignored, sizeof ignored));
  }
}

void Launcher::begin_stop() {
  stopping_ = true;
  kill_at_ = Clock::now() + options_.kill_after;
  for (Running& running : running_) {
    running.process->signal(SIGTERM);
    running.process->signal(SIGCONT);  // who was stopped could not obey
  }
}

void Launcher::handle_ends() {
  for (Running& running : running_) {
    if (const auto end = running.process->reap()) {
      handle_end(running, *end);
    }
  }
  std::erase_if(running_, [](const Running& running) { return running.process == nullptr; });
}

void Launcher::handle_end(Running& running, const ProcessEnd& end) {
  const bool failed = !end.ok() && !stopping_;
  const bool starts_again =
      failed && running.restarts < running.again.times && (end.signal != 0 || !running.again.only_when_killed);
  const int pid = running.process->pid();
  if (options_.on_exit) {
    options_.on_exit({.launch = running.launch,
                      .name = running.spec.name,
                      .host = options_.host,
                      .pid = pid,
                      .exit_code = end.exit_code,
                      .signal = end.signal,
                      .starts_again = starts_again});
  }
  if (starts_again) {
    ++running.restarts;
    running.launch = next_launch_++;
    try {
      running.process = spawn(running);
      return;
    } catch (const Error&) {
      // It could be started before: the machine has no more processes or memory. That is an end like another.
    }
  }
  result_.ended.push_back(
      {.name = running.spec.name, .pid = pid, .end = end, .told_to_stop = stopping_, .restarts = running.restarts});
  running.process.reset();
  if (!failed) {
    return;
  }
  if (!result_.culprit) {
    result_.culprit = result_.ended.size() - 1;
    result_.last_lines = last_lines(running.spec.log, options_.log_lines);
  }
  if (running.when_lost == WhenLost::stop_all) {
    stop();
  }
}

}  // namespace distbelief
