#pragma once

// The inside of MpiFabric. mpi_fabric.cc: a message's way when all goes well. mpi_giving_up.cc: when it does not.
//
// Open MPI 4.1.4 answers a long message for a shorter receive with MPI_ERR_TRUNCATE, but only after it has written the
// whole message into memory, far beyond the receive's end (all that it does not send along with the envelope: from 4 KB
// in shared memory, from 64 KB over TCP). So a receive must never meet a longer message. Small messages, which always
// travel with their envelope, have an MPI tag of their own kind and are received by MPI_Irecv, the quickest way. For
// all others MPI_Improbe looks for the envelope first, and only if the length is right the message is received.

#include <mpi.h>

#include <array>
#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "transport/ended_epochs.h"
#include "transport/mpi/mpi_fabric.h"
#include "transport/mpi/mpi_graveyard.h"

namespace distbelief {

/// Messages of at most so many bytes are small.
constexpr std::size_t kSmallMessageBytes = 2048;

// Open MPI has 31 bits for a tag, MPICH 28. Open transfers of two ranks are never as many as a sequence can tell apart,
// nor groups that live at the same time as many as epochs can.
constexpr int kMpiSequenceBits = 17;
constexpr int kMpiEpochBits = 9;
constexpr int kMpiLargeTag = 1 << (kMpiSequenceBits + kMpiEpochBits);
constexpr int kMpiNoticeTag = kMpiLargeTag << 1;

inline int mpi_tag(Tag tag, bool large) {
  const std::uint32_t epoch = tag.epoch & ((1U << kMpiEpochBits) - 1);
  const std::uint32_t sequence = tag.sequence & ((1U << kMpiSequenceBits) - 1);
  return static_cast<int>((epoch << kMpiSequenceBits) | sequence) | (large ? kMpiLargeTag : 0);
}

std::string mpi_error_text(int code);

class MpiFabric::Impl {
 public:
  explicit Impl(MpiWorld& world);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  const MpiWorld& world() const { return world_; }
  void post(Transfer& transfer);
  Outcome wait(Transfer& transfer, Clock::time_point deadline);
  bool progress(Transfer& transfer);
  void cancel(Transfer& transfer);
  void lose(Rank peer, const std::string& reason);
  void end_epoch(std::uint32_t epoch, const std::string& reason) { ended_.add(epoch, reason); }
  bool memory_unsafe();

 private:
  struct Open {
    MPI_Request request = MPI_REQUEST_NULL;  // null: a large receive whose message has not come
    Transfer* transfer = nullptr;
    bool withdrawn = false;  // the sender gave it up; what arrives is not what was sent
  };

  static bool is_large(const Transfer& transfer) { return transfer.bytes > kSmallMessageBytes; }
  static void finish(Transfer& transfer, Outcome outcome) {
    transfer.outcome = std::move(outcome);
    transfer.state = Transfer::State::finished;
  }
  static std::size_t index(Rank rank) { return static_cast<std::size_t>(rank.value); }
  bool is_lost(Rank peer) const { return lost_[index(peer)].load(std::memory_order_acquire); }
  Outcome lost_outcome(Rank peer);
  Outcome ended_outcome(const Transfer& transfer) const {
    return {Outcome::Kind::interrupted, transfer.peer, ended_.reason(transfer.tag.epoch)};
  }

  bool advance(Transfer& transfer);
  void look_for_others();
  void look_for(Transfer& transfer);
  bool look_for_other_length(Transfer& transfer);
  void complete(Transfer& transfer, int code, const MPI_Status& status);
  void finish_mismatch(Transfer& transfer, int received);
  MPI_Request take_out(const Transfer& transfer);
  void pause(Clock::duration waited);

  bool give_up(Transfer& transfer);
  bool give_up_send(Transfer& transfer);
  bool give_up_receive(Transfer& transfer);
  bool is_out_of_patience(Rank peer, Clock::time_point begin);
  /// What two fabrics tell each other about a send that was given up.
  enum class About : std::uint32_t {
    withdrawn,   ///< from the sender: what its memory holds from now on is not the message
    never_read,  ///< the answer, if the message was not received and will not be: the memory is the sender's alone
  };
  using Notice = std::array<std::uint32_t, 4>;  // about, epoch, sequence, is large
  void send_notice(About about, Rank peer, Tag tag, bool large);
  void expect_notice();
  void read_notices();
  void read_all_notices();
  void take_withdrawal(Rank peer, Tag tag, bool large);
  bool throw_away(Rank peer, Tag tag, bool large, int* bytes = nullptr);

  MpiWorld& world_;
  std::vector<Open> open_;            // a transfer's token is its place here
  std::vector<Transfer*> unmatched_;  // large receives whose message has not come
  std::size_t next_unmatched_ = 0;
  unsigned turns_ = 0;
  MpiGraveyard graveyard_;
  std::unique_ptr<std::byte[]> notice_in_;
  MPI_Request notice_request_ = MPI_REQUEST_NULL;
  std::vector<Clock::time_point> patience_with_lost_until_;  // by rank
  std::vector<Clock::time_point> no_patience_until_;         // by rank: it did not answer a notice
  std::vector<bool> drained_;                                // by rank: dead, and what it had sent is processed
  std::vector<std::atomic<bool>> lost_;                      // by rank
  EndedEpochs ended_;
  std::mutex mutex_;
  std::vector<std::string> reasons_;  // guarded by mutex_; by rank
};

}  // namespace distbelief
