#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "comm/group.h"

namespace distbelief {

/// Messages of one length between all members of a group, without a common step: each member sends one a round to every
/// other, and reads theirs in the order in which they were sent, whenever they come. Rounds count from 1.
///
/// Memory: `window` messages that are on their way out, and one of each peer that is coming in. Who has read a peer's
/// message posts the receive of the next, so a peer that is further ahead has to keep its messages, and when all of its
/// window is on the way it has to wait. Collectives of the same group may run whenever all members have read all that
/// was sent: a fabric keeps only so much that nobody has posted, and what comes after it waits.
///
/// One thread at a time. Bytes move in all functions but the ones that are const.
class PeerRounds {
 public:
  /// `group` is borrowed and outlives this. `bytes` and `window` are the same on all members.
  PeerRounds(Group& group, std::size_t bytes, int window);
  ~PeerRounds();  ///< gives up what is on its way
  PeerRounds(const PeerRounds&) = delete;
  PeerRounds& operator=(const PeerRounds&) = delete;

  /// How many rounds this member has sent, and how many of a peer's it has read.
  std::uint64_t sent() const { return sent_; }
  std::uint64_t read(int position) const { return peers_[static_cast<std::size_t>(position)].read; }

  /// Where the next message is to be written; none when the window is full, or when a peer was lost: see outcome().
  std::optional<std::span<std::byte>> outgoing();
  /// What was written to outgoing() goes to all others.
  void send();

  /// The next message of another member, if it has come whole; valid until release().
  std::optional<std::span<const std::byte>> arrived(int position);
  void release(int position);
  /// arrived(), but waits. None: see outcome().
  std::optional<std::span<const std::byte>> wait_for(int position, Clock::time_point deadline);

  /// Nothing that this member sent is on its way any more.
  bool all_delivered();
  /// Moves bytes, and no more.
  void progress();

  /// The first thing that went wrong with a peer; after that nothing comes any more.
  const Outcome& outcome() const { return outcome_; }

 private:
  /// A message is cut where a fabric's limit makes it necessary.
  struct Message {
    std::vector<Transfer> pieces;
    std::size_t finished = 0;  ///< the first so many have ended
    bool open = false;
  };
  struct Peer {
    Message in;
    Buffer memory;
    std::uint64_t read = 0;
  };
  struct Slot {
    Buffer memory;
    std::vector<Message> out;  ///< by position
  };

  Tag tag(std::uint64_t round, std::size_t piece) const;
  std::span<std::byte> piece_of(const Buffer& memory, std::size_t piece) const;
  void expect(int position);
  /// True when it has ended; how it failed goes into outcome_. Waits until the deadline, if there is one.
  bool ended(Message& message, std::optional<Clock::time_point> deadline = std::nullopt);
  Slot& slot(std::uint64_t round) { return slots_[static_cast<std::size_t>(round % slots_.size())]; }
  bool delivered(Slot& slot);

  Group& group_;
  Fabric& fabric_;
  const std::size_t bytes_;
  const std::size_t pieces_;
  std::vector<Slot> slots_;
  std::vector<Peer> peers_;  ///< by position; our own stays empty
  std::uint64_t sent_ = 0;
  Outcome outcome_;
};

}  // namespace distbelief
