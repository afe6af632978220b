#include "signals.h"

#include <atomic>
#include <csignal>

namespace distbelief {
namespace {

std::atomic<int> last_signal = 0;  // what a signal handler may write

std::atomic<int> signals = 0;

extern "C" void remember_signal(int signal) {
  last_signal = signal;
  signals = signals + 1;
}

}  // namespace

void catch_stop_signals() {
  std::signal(SIGINT, remember_signal);
  std::signal(SIGTERM, remember_signal);
}

int stop_signal() { return last_signal; }

int stop_signals() { return signals; }

}  // namespace distbelief
