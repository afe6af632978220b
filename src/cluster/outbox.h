#pragma once

#include <cstdint>
#include <deque>
#include <memory>

#include "cluster/control_message.h"

namespace distbelief {

/// One message may be on its way to every member of the job at once, and is then held once.
using SharedControlMessage = std::shared_ptr<const ControlMessage>;

/// Numbered messages that a peer has not yet said it received. When a connection breaks, the peer says on the next one
/// how many reached it, and the rest is sent again: so a short break loses nothing and repeats nothing. Messages bear
/// no number on the wire, because a connection keeps their order: both ends count. One thread.
class Outbox {
 public:
  void push(SharedControlMessage message) { waiting_.push_back(std::move(message)); }

  /// The peer has received `received` of all that was ever pushed. False when that cannot be: fewer than it said
  /// before, or more than there were.
  [[nodiscard]] bool acknowledge(std::uint64_t received) {
    if (received < acknowledged_ || received - acknowledged_ > waiting_.size()) {
      return false;
    }
    for (; acknowledged_ < received; ++acknowledged_) {
      waiting_.pop_front();
    }
    return true;
  }

  /// For a peer that has received nothing yet: what it had acknowledged was to another, and what waits is for it.
  void restart(std::deque<SharedControlMessage> waiting) {
    acknowledged_ = 0;
    waiting_ = std::move(waiting);
  }

  const std::deque<SharedControlMessage>& waiting() const { return waiting_; }
  std::uint64_t acknowledged() const { return acknowledged_; }
  void clear() { waiting_.clear(); }

 private:
  std::uint64_t acknowledged_ = 0;
  std::deque<SharedControlMessage> waiting_;
};

}  // namespace distbelief
