#include "server/link_thread.h"

#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>

#include "base/clock.h"

namespace distbelief {
namespace {

using std::chrono::microseconds;

constexpr microseconds kYieldFor{20};
// A nap is a small part of the time for which nothing has come: what comes next is then late by a small part of what it
// took to come. To wake up costs several microseconds of a core that somebody else may compute on.
constexpr int kNapsAsLongAsBefore = 8;
constexpr microseconds kShortestNap{30};
constexpr microseconds kLongestNap{1000};
constexpr microseconds kLongestInAMessage{100};
/// A nap ends that late at most; the system's own 50 us are longer than the naps.
constexpr unsigned long kNapSlackNanoseconds = 2'000;

}  // namespace

void LinkThread::start(const Fabric& fabric, std::function<bool()> advance, std::function<bool()> in_a_message,
                       std::function<void()> begins) {
  thread_ = std::jthread([this, &fabric, advance = std::move(advance), in_a_message = std::move(in_a_message),
                          begins = std::move(begins)](const std::stop_token& stop) {
    if (begins) {
      begins();
    }
    run(stop, fabric, advance, in_a_message);
  });
}

void LinkThread::stop() { thread_ = {}; }

void LinkThread::wake() {
  const std::scoped_lock lock(mutex_);
  wake_ = true;
  woken_.notify_one();
}

void LinkThread::run(const std::stop_token& stop, const Fabric& fabric, const std::function<bool()>& advance,
                     const std::function<bool()>& in_a_message) {
  ::prctl(PR_SET_TIMERSLACK, kNapSlackNanoseconds);
  Clock::time_point moved_at = Clock::now();
  while (!stop.stop_requested()) {
    const std::uint64_t moves = fabric.moves();
    if (advance()) {
      moved_at = Clock::now();
      continue;
    }
    if (fabric.moves() != moves) {
      moved_at = Clock::now();
      sched_yield();  // it may be another thread that moves them, and wants the fabric too
      continue;
    }
    const Clock::duration idle = Clock::now() - moved_at;
    if (idle < kYieldFor) {
      sched_yield();
      continue;
    }
    const microseconds longest = in_a_message() ? kLongestInAMessage : kLongestNap;
    const auto nap = std::clamp<Clock::duration>(idle / kNapsAsLongAsBefore, kShortestNap, longest);
    std::unique_lock lock(mutex_);
    if (woken_.wait_for(lock, stop, nap, [&] { return wake_; })) {
      wake_ = false;
      moved_at = Clock::now();
    }
  }
}

}  // namespace distbelief
