#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace distbelief {

/// Does what may take long, one thing at a time, for a thread that must not wait for long: writing to a disk that is
/// busy or away, say. Used by one thread.
class SideThread {
 public:
  SideThread() : thread_([this](const std::stop_token& stop) { work(stop); }) {}
  SideThread(const SideThread&) = delete;
  SideThread& operator=(const SideThread&) = delete;
  /// Waits for what is being done.
  ~SideThread() = default;

  /// True when the task has been done, with what it threw thrown. False: it is being done still, after `patience`; what
  /// it uses must live as long as it, and what it throws is lost. False at once, and the task is not done at all, while
  /// one before it still is.
  [[nodiscard]] bool run(std::function<void()> task, std::chrono::milliseconds patience);
  /// True when nothing is being done.
  [[nodiscard]] bool wait(std::chrono::milliseconds patience);

 private:
  void work(const std::stop_token& stop);

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::function<void()> task_;            // guarded by mutex_, as the next; while there is one it is being done
  std::exception_ptr failure_ = nullptr;  // of the last
  std::jthread thread_;                   // behind what it uses
};

}  // namespace distbelief
