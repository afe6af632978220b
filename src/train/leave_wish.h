#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>

#include "cluster/member.h"

namespace distbelief {

/// Of a member of a group, or a server: when its process was asked to end, it asks the coordinator whether it may
/// leave, again and again until there is an order, and once more when that does not hold any more. (When the processes
/// of all members were asked, it is one to stop.) A thread looks, as a step can take long.
class LeaveWish {
 public:
  /// `member` is borrowed. These are called on the thread: whether the process was asked to end, and whether there is
  /// an order.
  LeaveWish(Member& member, std::function<bool()> asked, std::function<bool()> ordered)
      : thread_([this, &member, asked = std::move(asked), ordered = std::move(ordered)](const std::stop_token& stop) {
          look(member, asked, ordered, stop);
        }) {}

  /// Nobody has answered for so long that this process ends all the same, and takes the others along.
  bool is_in_vain() const { return is_in_vain_; }

 private:
  static constexpr std::chrono::milliseconds kBetweenLooks{50};
  static constexpr std::chrono::seconds kBetweenWishes{2};
  static constexpr std::chrono::seconds kPatience{15};

  void look(Member& member, const std::function<bool()>& asked, const std::function<bool()>& ordered,
            const std::stop_token& stop) {
    Clock::time_point in_vain_from = Clock::time_point::max();
    Clock::time_point next = Clock::now();
    for (; !stop.stop_requested(); std::this_thread::sleep_for(kBetweenLooks)) {
      if (!asked() || ordered()) {
        in_vain_from = Clock::time_point::max();
        continue;
      }
      in_vain_from = std::min(in_vain_from, Clock::now() + kPatience);
      if (Clock::now() >= next) {
        member.order(
            {.what = Order::What::leave, .reason = "its process was asked to end", .rank = member.self().rank});
        next = Clock::now() + kBetweenWishes;
      }
      is_in_vain_ = is_in_vain_ || Clock::now() > in_vain_from;
    }
  }

  std::atomic<bool> is_in_vain_ = false;
  std::jthread thread_;
};

}  // namespace distbelief
