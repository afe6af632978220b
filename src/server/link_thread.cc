#include "server/link_thread.h"

#include <sched.h>
#include <sys/prctl.h>

#include "base/clock.h"

namespace distbelief {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr microseconds kYieldFor{20};
constexpr microseconds kShortNap{30};
constexpr milliseconds kShortNapsFor{5};
constexpr microseconds kLongNap{100};
constexpr milliseconds kLongNapsFor{200};
constexpr microseconds kIdleNap{1000};
/// A nap ends that late at most; the system's own 50 us are longer than the naps.
constexpr unsigned long kNapSlackNanoseconds = 2'000;

}  // namespace

void LinkThread::start(const Fabric& fabric, std::function<bool()> advance, std::function<void()> begins) {
  thread_ = std::jthread(
      [this, &fabric, advance = std::move(advance), begins = std::move(begins)](const std::stop_token& stop) {
        if (begins) {
          begins();
        }
        run(stop, fabric, advance);
      });
}

void LinkThread::stop() { thread_ = {}; }

void LinkThread::wake() {
  const std::scoped_lock lock(mutex_);
  wake_ = true;
  woken_.notify_one();
}

void LinkThread::run(const std::stop_token& stop, const Fabric& fabric, const std::function<bool()>& advance) {
  ::prctl(PR_SET_TIMERSLACK, kNapSlackNanoseconds);
  Clock::time_point moved_at = Clock::now();
  while (!stop.stop_requested()) {
    const std::uint64_t moves = fabric.moves();
    if (advance() || fabric.moves() != moves) {
      moved_at = Clock::now();
      continue;
    }
    const Clock::duration idle = Clock::now() - moved_at;
    if (idle < kYieldFor) {
      sched_yield();
      continue;
    }
    const microseconds nap = idle < kShortNapsFor ? kShortNap : idle < kLongNapsFor ? kLongNap : kIdleNap;
    std::unique_lock lock(mutex_);
    if (woken_.wait_for(lock, stop, nap, [&] { return wake_; })) {
      wake_ = false;
      moved_at = Clock::now();
    }
  }
}

}  // namespace distbelief
