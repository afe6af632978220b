#pragma once

#include <deque>
#include <mutex>
#include <optional>

#include "cluster/member.h"

namespace distbelief {

/// What a coordinator that came back asks of servers, from the member's thread to the one that answers. Thread-safe.
class LeaseQuestions {
 public:
  void operator()(const MemberEvent& event) {
    if (const auto* question = std::get_if<LeaseQuestion>(&event)) {
      const std::scoped_lock lock(mutex_);
      waiting_.push_back(*question);
    }
  }
  /// The next one, if there is one.
  std::optional<LeaseQuestion> take() {
    const std::scoped_lock lock(mutex_);
    if (waiting_.empty()) {
      return std::nullopt;
    }
    LeaseQuestion question = std::move(waiting_.front());
    waiting_.pop_front();
    return question;
  }

 private:
  std::mutex mutex_;
  std::deque<LeaseQuestion> waiting_;  // guarded by mutex_
};

}  // namespace distbelief
