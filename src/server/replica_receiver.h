#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "server/ordered_server.h"
#include "server/pending_transfer.h"
#include "tensor/buffer.h"

namespace distbelief {

/// Hears from a primary what it does, has the backup repeat it, and acknowledges. A thread of its own repeats, so that
/// the next change comes in meanwhile; where a server has few parameters the thread of the fabric does it itself. Never
/// waits for anything else, so that two servers may be backups of each other. A primary that is lost, or says what
/// makes no sense, is not listened to any more.
class ReplicaReceiver {
 public:
  /// `fabric` and `backup` are borrowed. `wake` is called when there is something to send. `first_turn` is what the
  /// receiver before this one, of the same two, said when it ended.
  ReplicaReceiver(Fabric& fabric, OrderedServer& backup, Rank primary, std::uint32_t view, std::function<void()> wake,
                  std::uint32_t first_turn = 0);
  ~ReplicaReceiver();
  ReplicaReceiver(const ReplicaReceiver&) = delete;
  ReplicaReceiver& operator=(const ReplicaReceiver&) = delete;

  /// For the thread that uses the fabric, as the constructor and the destructor; true when something moved.
  bool advance();
  bool in_a_message() const;
  /// Listens no more. See ReplicaSender::next_turn().
  std::uint32_t end();
  /// The primary has said its last word, and was answered; or it is not listened to any more.
  bool has_ended() const;

 private:
  enum class State : std::uint8_t { head, body, received, repeated, acknowledging, closed };
  struct Slot {
    std::atomic<State> state = State::closed;
    std::uint32_t turn = 0;
    ReplicaHead head;
    ReplicaAck ack;
    Buffer body;
    PendingTransfer head_in, body_in, ack_out;
  };
  void listen(Slot& slot);
  bool advance(Slot& slot);
  bool arrived(PendingTransfer& transfer);
  void received(Slot& slot);
  void repeat(Slot& slot);
  void close();
  std::span<const std::byte> body_of(const Slot& slot) const {
    return {slot.body.data(), static_cast<std::size_t>(slot.head.request.body_bytes)};
  }

  Fabric& fabric_;
  OrderedServer& backup_;
  const Rank primary_;
  const std::uint32_t view_;
  const std::function<void()> wake_;
  const bool repeats_itself_;
  std::array<Slot, kReplicaSlots> slots_;
  std::uint32_t next_;  ///< the turn that is repeated next
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::jthread thread_;  // last: it stops before the rest goes
};

}  // namespace distbelief
