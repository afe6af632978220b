#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace distbelief {

/// Epochs of groups that are over, with the reasons. Thread-safe; asking costs nothing as long as none has ended.
class EndedEpochs {
 public:
  /// Of several reasons the first stays.
  void add(std::uint32_t epoch, const std::string& reason) {
    const std::scoped_lock lock(mutex_);
    ended_.emplace(epoch, reason);
    any_.store(true, std::memory_order_release);
  }
  bool contains(std::uint32_t epoch) const {
    if (!any_.load(std::memory_order_acquire)) {
      return false;
    }
    const std::scoped_lock lock(mutex_);
    return ended_.contains(epoch);
  }
  /// Of one that has ended.
  std::string reason(std::uint32_t epoch) const {
    const std::scoped_lock lock(mutex_);
    return ended_.at(epoch);
  }

 private:
  std::atomic<bool> any_ = false;
  mutable std::mutex mutex_;
  std::map<std::uint32_t, std::string> ended_;  // guarded by mutex_
};

}  // namespace distbelief
