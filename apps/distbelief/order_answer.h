#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>

#include "cluster/member.h"

namespace distbelief {

/// What the coordinator says to an order, from the member's thread to the command's.
class AnswerInbox {
 public:
  void operator()(const MemberEvent& event) {
    if (const auto* answer = std::get_if<OrderAnswer>(&event)) {
      const std::scoped_lock lock(mutex_);
      answer_ = *answer;
      came_.notify_all();
    }
  }
  /// Nothing at the deadline.
  std::optional<OrderAnswer> wait(Clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    came_.wait_until(lock, deadline, [&] { return answer_.has_value(); });
    return answer_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable came_;
  std::optional<OrderAnswer> answer_;  // guarded by mutex_
};

}  // namespace distbelief
