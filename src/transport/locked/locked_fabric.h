#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "transport/fabric.h"

namespace distbelief {

/// Any fabric, for several threads of a process: each transfer is one thread's, and each thread may wait for its own
/// while others move theirs. Who waits asks again and again, ever less often at first; alone a thread is better served
/// by the fabric itself, and is, as long as nobody says that there are several.
class LockedFabric : public Fabric {
 public:
  /// `several`: see set_several().
  explicit LockedFabric(std::unique_ptr<Fabric> fabric, bool several = true)
      : fabric_(std::move(fabric)), several_(several) {}

  Rank rank() const override { return fabric_->rank(); }
  int size() const override { return fabric_->size(); }
  Outcome wait(Transfer& transfer, Clock::time_point deadline) override;
  bool progress(Transfer& transfer) override;
  std::uint64_t moves() const override;
  void cancel(Transfer& transfer) override;
  void lose(Rank peer, const std::string& reason) override { fabric_->lose(peer, reason); }
  void end_epoch(std::uint32_t epoch, const std::string& reason) override { fabric_->end_epoch(epoch, reason); }

  /// Whether more than one thread moves anything from now on. To be said while one at most does.
  void set_several(bool several) { several_ = several; }
  /// For what is done to the fabric itself: no thread moves anything meanwhile.
  template <typename Act>
  auto alone(const Act& act) {
    const std::scoped_lock lock(mutex_);
    return act();
  }

 protected:
  void post(Transfer& transfer) override;

 private:
  const std::unique_ptr<Fabric> fabric_;
  std::atomic<bool> several_;
  mutable std::mutex mutex_;  // of all of it but lose() and end_epoch()
};

}  // namespace distbelief
