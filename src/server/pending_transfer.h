#pragma once

#include "transport/fabric.h"

namespace distbelief {

/// A transfer of a thread that never waits for it. Knows by itself whether it is open: a transfer's own state belongs
/// to the fabric meanwhile.
class PendingTransfer {
 public:
  void send(Fabric& fabric, Rank peer, Tag tag, std::span<const std::byte> data) {
    open_ = true;
    fabric.send(transfer_, peer, tag, data);
  }
  void receive(Fabric& fabric, Rank peer, Tag tag, std::span<std::byte> into) {
    open_ = true;
    fabric.receive(transfer_, peer, tag, into);
  }
  /// True when nothing is open, or not any more. A failure is written into `outcome`, unless there is one already.
  bool ended(Fabric& fabric, Outcome& outcome) {
    if (!open_) {
      return true;
    }
    if (!fabric.progress(transfer_)) {
      return false;
    }
    open_ = false;
    Outcome how = fabric.wait(transfer_, Clock::now());
    if (!how.ok() && outcome.ok()) {
      outcome = std::move(how);
    }
    return true;
  }
  bool open() const { return open_; }
  void give_up(Fabric& fabric) {
    if (open_) {
      fabric.cancel(transfer_);
      open_ = false;
    }
  }

 private:
  Transfer transfer_;
  bool open_ = false;
};

}  // namespace distbelief
