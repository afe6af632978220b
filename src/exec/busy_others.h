#pragma once

#include <functional>
#include <latch>
#include <thread>
#include <utility>
#include <vector>

namespace distbelief {

/// While it lives, other threads do the same work again and again, each with memory of its own: so that what is
/// measured meanwhile is as slow as it is in one of several processes of the machine. Thread-safe in itself; `make` is
/// called on those threads, and a work that throws ends its thread and nothing else.
class BusyOthers {
 public:
  using Work = std::function<void()>;
  /// Returns when each has done its work once.
  BusyOthers(int count, const std::function<Work()>& make) : ready_(count) {
    for (int i = 0; i < count; ++i) {
      threads_.emplace_back([this, make](const std::stop_token& stop) { run(make, stop); });
    }
    ready_.wait();
  }

 private:
  void run(const std::function<Work()>& make, const std::stop_token& stop) {
    bool first = true;
    try {
      const Work work = make();
      while (first || !stop.stop_requested()) {
        work();
        if (std::exchange(first, false)) {
          ready_.count_down();
        }
      }
    } catch (const std::exception&) {
      if (first) {
        ready_.count_down();
      }
    }
  }

  std::latch ready_;
  std::vector<std::jthread> threads_;  // last: they end before the rest goes
};

}  // namespace distbelief
