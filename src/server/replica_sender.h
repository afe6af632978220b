#pragma once

#include <array>
#include <optional>

#include "server/pending_transfer.h"
#include "server/replica_log.h"

namespace distbelief {

/// Sends what is in a primary's log to its backup, a few changes at a time. For the thread that uses the fabric.
class ReplicaSender {
 public:
  /// Both are borrowed. `view` is the one of the shelf's channels.
  ReplicaSender(Fabric& fabric, ReplicaLog& log, std::uint32_t view);
  ~ReplicaSender();
  ReplicaSender(const ReplicaSender&) = delete;
  ReplicaSender& operator=(const ReplicaSender&) = delete;

  /// True when something moved. A backup that is lost is not spoken to any more; the log says who is next.
  bool advance();
  bool in_a_message() const;

 private:
  struct Slot {
    ReplicaLog::Entry* entry = nullptr;  ///< null: free
    ReplicaHead head;
    ReplicaAck ack;
    PendingTransfer head_out, body_out, ack_in;
  };
  void begin(Slot& slot, ReplicaLog::Entry& entry);
  void give_up();

  Fabric& fabric_;
  ReplicaLog& log_;
  const std::uint32_t view_;
  std::optional<Rank> backup_;
  std::uint64_t backups_before_ = 0;
  bool lost_ = false;
  std::uint32_t turn_ = 0;
  std::array<Slot, kReplicaSlots> slots_;
};

}  // namespace distbelief
