#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <optional>

#include "server/pending_transfer.h"
#include "server/replica_log.h"

namespace distbelief {

/// Sends what is in a primary's log to its backup, a few changes at a time. For the thread that uses the fabric.
class ReplicaSender {
 public:
  /// From which turn on a channel to this backup counts; none: from 0.
  using FirstTurn = std::function<std::uint32_t(Rank backup)>;
  /// Both are borrowed. `view` is the one of the shelf's channels.
  ReplicaSender(Fabric& fabric, ReplicaLog& log, std::uint32_t view, FirstTurn first_turn = {});
  ~ReplicaSender();
  ReplicaSender(const ReplicaSender&) = delete;
  ReplicaSender& operator=(const ReplicaSender&) = delete;

  /// True when something moved. A backup that is lost is not spoken to any more; the log says who is next.
  bool advance();
  bool in_a_message() const;
  /// The backup is not spoken to any more. Thread-safe.
  bool is_lost() const { return lost_; }
  std::optional<Rank> backup() const { return backup_; }
  /// Where the next channel of the same two begins, when all was acknowledged: behind the turns that the receiver
  /// waited for in vain, as a message with the tag of a receive that was given up may be thrown away.
  std::uint32_t next_turn() const { return turn_ + kReplicaSlots; }

 private:
  struct Slot {
    ReplicaLog::Entry* entry = nullptr;  ///< null: free
    ReplicaHead head;
    ReplicaAck ack;
    PendingTransfer head_out, body_out, ack_in;
  };
  void begin(Slot& slot, ReplicaLog::Entry& entry);
  void give_up();
  std::uint32_t first_turn() const { return backup_ && first_turn_ ? first_turn_(*backup_) : 0; }

  Fabric& fabric_;
  ReplicaLog& log_;
  const std::uint32_t view_;
  const FirstTurn first_turn_;
  std::optional<Rank> backup_;
  std::uint64_t backups_before_ = 0;
  std::atomic<bool> lost_ = false;
  std::uint32_t turn_ = 0;
  std::array<Slot, kReplicaSlots> slots_;
};

}  // namespace distbelief
