#include "base/side_thread.h"

#include <utility>

namespace distbelief {

bool SideThread::run(std::function<void()> task, std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  if (task_) {
    return false;
  }
  task_ = std::move(task);
  failure_ = nullptr;
  changed_.notify_all();
  if (!changed_.wait_for(lock, patience, [&] { return !task_; })) {
    return false;
  }
  if (failure_) {
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }
  return true;
}

bool SideThread::wait(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, patience, [&] { return !task_; });
}

void SideThread::work(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [&] { return static_cast<bool>(task_); })) {
    lock.unlock();
    std::exception_ptr failure;
    try {
      task_();  // nobody else touches it while it is there
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    failure_ = failure;
    task_ = nullptr;
    changed_.notify_all();
  }
}

}  // namespace distbelief
