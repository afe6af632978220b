#include "signals.h"

#include <array>
#include <atomic>
#include <csignal>

namespace distbelief {
namespace {

constexpr std::size_t kStackBytes = 256 << 10;  // the registers of some processors take more than 10 KB

std::atomic<int> last_signal = 0;  // what a signal handler may write

std::atomic<int> signals = 0;
std::atomic<bool> interrupted = false;
std::atomic<bool> terminated = false;

extern "C" void remember_signal(int signal) {
  last_signal = signal;
  (signal == SIGINT ? interrupted : terminated) = true;
  signals = signals + 1;
}

}  // namespace

void catch_stop_signals() {
  // oneDNN's products for AVX-512 use the stack's register for their own memory: what the system writes below it for a
  // handler would then overwrite the heap. So handlers have a stack of their own. Signals for the process are the main
  // thread's.
  alignas(64) static std::array<char, kStackBytes> stack;
  stack_t own = {};
  own.ss_sp = stack.data();
  own.ss_size = stack.size();
  ::sigaltstack(&own, nullptr);
  struct sigaction action = {};
  action.sa_handler = remember_signal;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

int stop_signal() { return last_signal; }

int stop_signals() { return signals; }

bool stop_signal_came(int signal) { return signal == SIGINT ? interrupted : terminated; }

}  // namespace distbelief
