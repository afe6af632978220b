#pragma once

#include <atomic>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/clock.h"

namespace distbelief {

/// A process's number in the data plane of one job: 0, 1, 2, … Numbers of the dead are not given to others.
struct Rank {
  int value = -1;
  friend bool operator==(const Rank&, const Rank&) = default;
  friend std::strong_ordering operator<=>(const Rank& a, const Rank& b) { return a.value <=> b.value; }
};

/// Which exchange a message belongs to. Both ends derive it alike. Between two ranks and in one direction no two open
/// transfers have the same tag.
struct Tag {
  std::uint32_t epoch = 0;     ///< of the group that exchanges; a change of members begins a new one
  std::uint32_t sequence = 0;  ///< counts the exchanges of that group
  friend bool operator==(const Tag&, const Tag&) = default;
};

/// How an exchange ended. That a peer dies or is late is expected, so it is a value and not an exception.
struct [[nodiscard]] Outcome {
  enum class Kind : std::uint8_t {
    done,
    peer_lost,    ///< the peer is dead, or the way to it is cut for good
    timed_out,    ///< the deadline passed; the peer may still live
    mismatch,     ///< the peer sent something other than what was expected: a bug or a stranger
    interrupted,  ///< the group that exchanges is over, as end_epoch() said; the peer may live
  };
  Kind kind = Kind::done;
  Rank peer = {};           ///< with whom it went wrong
  std::string reason = {};  ///< for people: "closed the connection", "was killed by signal 9"

  bool ok() const { return kind == Kind::done; }
};

/// One posted send or receive. The caller owns it, and keeps it and the memory it names where they are until wait()
/// said how it ended or cancel() returned. It may then be posted again. All but the two functions is for fabrics.
struct Transfer {
  Transfer() = default;
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  enum class State : std::uint8_t { idle, posted, finished };
  State state = State::idle;
  bool sends = false;
  Rank peer = {};
  Tag tag = {};
  std::byte* data = nullptr;  ///< not written to when sending
  std::size_t bytes = 0;
  Outcome outcome = {};
  std::uint64_t token = 0;  ///< the fabric's own
};

/// This process's links to the other ranks of a job: messages of known length, sent and received without waiting.
///
/// Both ends of a message post it with the same tag and length. A send may stay open until the peer has posted the
/// receive, so post before waiting, never the other way round. Messages between two ranks may be received in another
/// order than they were sent. Posting never blocks and never fails: how it went is told by wait().
///
/// One thread at a time, except lose() and end_epoch(). Implementations move bytes inside wait() and progress() only,
/// or on threads of their own; nothing is promised about when, only that wait() returns by its deadline.
class Fabric {
 public:
  static constexpr std::size_t kMaxMessageBytes = std::size_t{1} << 30;

  virtual ~Fabric() = default;
  virtual Rank rank() const = 0;
  /// Ranks are 0 … size() - 1.
  virtual int size() const = 0;

  void send(Transfer& transfer, Rank peer, Tag tag, std::span<const std::byte> data);
  void receive(Transfer& transfer, Rank peer, Tag tag, std::span<std::byte> into);

  /// How the transfer ended; idle again afterwards. At the deadline it is cancelled first, and timed_out.
  virtual Outcome wait(Transfer& transfer, Clock::time_point deadline) = 0;
  /// Moves on what can move on with this peer without waiting. True when the transfer is finished, so that wait() will
  /// not wait.
  virtual bool progress(Transfer& transfer) = 0;
  /// Grows while bytes move, where that can be seen, so that who asks for progress() knows a long message from none.
  virtual std::uint64_t moves() const { return 0; }
  /// What was given to send() so far. Any thread.
  std::uint64_t sent_bytes() const { return sent_bytes_.load(std::memory_order_relaxed); }
  /// Gives the transfer up; a message that is on its way is thrown away when it comes. Returns at once.
  virtual void cancel(Transfer& transfer) = 0;

  /// What is open with this peer ends with peer_lost, and what is posted later does so at once. Thread-safe; for
  /// whoever learns of a death by another way. Of several reasons the first stays.
  virtual void lose(Rank peer, const std::string& reason) = 0;

  /// The group with this epoch is over: what is open with its tags ends with `interrupted`, and what is posted later
  /// does so at once. Its messages that came or come are thrown away. Links stay, and other epochs are not touched. No
  /// later group has this epoch. Each member must call it. Thread-safe; of several reasons the first stays.
  virtual void end_epoch(std::uint32_t epoch, const std::string& reason) = 0;

 protected:
  /// `transfer` is filled in and posted; peer is another rank of this job.
  virtual void post(Transfer& transfer) = 0;
  /// For fabrics that stand around others, and leave the transfer to them.
  static void post_to(Fabric& fabric, Transfer& transfer) { fabric.post(transfer); }

 private:
  std::atomic<std::uint64_t> sent_bytes_ = 0;
};

}  // namespace distbelief
