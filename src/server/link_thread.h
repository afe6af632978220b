#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "transport/fabric.h"

namespace distbelief {

/// The one thread that uses a process's fabric while parameters are served or fetched over it. It asks what stands on
/// it to move on, again and again, and sleeps ever longer while nothing moves: microseconds while answers are due, a
/// millisecond when the process computes. Not so in the middle of a message, which some fabrics move only while they
/// are asked to, without telling.
class LinkThread {
 public:
  LinkThread() = default;
  LinkThread(const LinkThread&) = delete;
  LinkThread& operator=(const LinkThread&) = delete;

  /// `advance` does what can be done over `fabric`, which is borrowed, without waiting, and tells whether anything
  /// ended or began; `in_a_message` whether some bytes are on their way. They are called on this thread until stop()
  /// returns. `begins`, if there is one, is called there first.
  void start(const Fabric& fabric, std::function<bool()> advance, std::function<bool()> in_a_message,
             std::function<void()> begins = {});
  void stop();
  /// There is something new to move. Thread-safe, also before start() and after stop().
  void wake();

 private:
  void run(const std::stop_token& stop, const Fabric& fabric, const std::function<bool()>& advance,
           const std::function<bool()>& in_a_message);

  std::mutex mutex_;
  std::condition_variable_any woken_;
  bool wake_ = false;    // guarded by mutex_
  std::jthread thread_;  // last: it stops before the rest goes
};

}  // namespace distbelief
