#include "cluster/orphans.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <thread>
#include <utility>

namespace distbelief {
namespace {

constexpr std::chrono::milliseconds kBetweenReaps{5};

/// False when there are no children any more.
bool reap_those_that_ended() {
  for (;;) {
    const pid_t ended = ::waitpid(-1, nullptr, WNOHANG);
    if (ended <= 0) {
      return ended == 0;
    }
  }
}

void kill_children() {
  std::ifstream children(fmt::format("/proc/self/task/{}/children", ::getpid()));
  for (pid_t child = 0; children >> child;) {
    ::kill(child, SIGKILL);
  }
}

}  // namespace

void adopt_orphans() { ::prctl(PR_SET_CHILD_SUBREAPER, 1UL); }

void end_orphans(Clock::time_point deadline) {
  bool killed = false;
  while (reap_those_that_ended()) {
    if (Clock::now() > deadline && !std::exchange(killed, true)) {
      kill_children();
    } else if (Clock::now() > deadline + std::chrono::seconds(2)) {
      return;  // the system does not let them go
    }
    std::this_thread::sleep_for(kBetweenReaps);
  }
}

}  // namespace distbelief
