#include "transport/locked/locked_fabric.h"

#include <sched.h>

#include <algorithm>
#include <thread>

namespace distbelief {
namespace {

constexpr std::chrono::microseconds kYieldOutside{50};
constexpr std::chrono::microseconds kNapOutside{50};

}  // namespace

Outcome LockedFabric::wait(Transfer& transfer, Clock::time_point deadline) {
  if (!several_) {
    return fabric_->wait(transfer, deadline);
  }
  const Clock::time_point began = Clock::now();
  for (;;) {
    const Clock::time_point now = Clock::now();
    {
      const std::scoped_lock lock(mutex_);
      if (fabric_->progress(transfer) || now >= deadline) {
        return fabric_->wait(transfer, now);
      }
    }
    if (now < began + kYieldOutside) {
      sched_yield();
    } else {
      std::this_thread::sleep_until(std::min(now + kNapOutside, deadline));
    }
  }
}

bool LockedFabric::progress(Transfer& transfer) {
  const std::scoped_lock lock(mutex_);
  return fabric_->progress(transfer);
}

std::uint64_t LockedFabric::moves() const {
  const std::scoped_lock lock(mutex_);
  return fabric_->moves();
}

void LockedFabric::cancel(Transfer& transfer) {
  const std::scoped_lock lock(mutex_);
  fabric_->cancel(transfer);
}

void LockedFabric::post(Transfer& transfer) {
  const std::scoped_lock lock(mutex_);
  post_to(*fabric_, transfer);
}

}  // namespace distbelief
