// What MpiFabric does about messages that are given up, peers that are lost, and its own end.
#ifdef DISTBELIEF_HAS_MPI

#include <sched.h>

#include <cstring>

#include "base/check.h"
#include "transport/mpi/mpi_fabric_impl.h"

namespace distbelief {
namespace {

using std::chrono::milliseconds;

// How long a receive that is being written is driven on. A lost peer's receives share one such time.
constexpr milliseconds kPatienceWithLost{50};
constexpr milliseconds kPatienceWithLiving{1000};
// How long a peer may take to answer that it has not begun to receive a send that is given up, and how long one that
// did not answer is not waited for again.
constexpr milliseconds kPatienceWithReader{250};
constexpr milliseconds kImpatience{1000};
constexpr milliseconds kDrainAfterDeath{2};

}  // namespace

MpiFabric::Impl::~Impl() {
  while (!open_.empty()) {
    (void)give_up(*open_.back().transfer);
  }
  MPI_Cancel(&notice_request_);
  graveyard_.bury(notice_request_, world_.rank(), std::move(notice_in_));
  const auto deadline = Clock::now() + kPatienceWithLost;
  do {
    graveyard_.look_at_all();
    sched_yield();
  } while (!graveyard_.empty() && Clock::now() < deadline);
  if (!graveyard_.empty()) {
    world_.leave_without_finalize();
    graveyard_.leave_to_mpi();
  }
}

void MpiFabric::Impl::cancel(Transfer& transfer) {
  if (transfer.state == Transfer::State::posted) {
    (void)give_up(transfer);
  }
  transfer.state = Transfer::State::idle;
}

void MpiFabric::Impl::lose(Rank peer, const std::string& reason) {
  check(peer.value >= 0 && peer.value < world_.size() && peer != world_.rank(), "a peer is another rank of the job");
  const std::scoped_lock lock(mutex_);
  if (!is_lost(peer)) {
    reasons_[index(peer)] = reason;
    world_.leave_without_finalize();
    lost_[index(peer)].store(true, std::memory_order_release);
  }
}

Outcome MpiFabric::Impl::lost_outcome(Rank peer) {
  const std::scoped_lock lock(mutex_);
  return {Outcome::Kind::peer_lost, peer, reasons_[index(peer)]};
}

bool MpiFabric::Impl::memory_unsafe() {
  read_notices();
  graveyard_.look_at_all();
  for (const Rank peer : graveyard_.dangerous_peers()) {
    if (drained_[index(peer)]) {
      continue;
    }
    if (!world_.is_certainly_dead(peer)) {
      return true;
    }
    // The dead send no more. What they left on the way is processed within a few looks.
    drained_[index(peer)] = true;
    const auto deadline = Clock::now() + kDrainAfterDeath;
    do {
      graveyard_.look_at_all();
    } while (Clock::now() < deadline);
  }
  return false;
}

/// False: the transfer is open no more. True: it turned out to be finished. Its memory is left alone from here on, as
/// far as the comment on MpiFabric says.
bool MpiFabric::Impl::give_up(Transfer& transfer) {
  return transfer.sends ? give_up_send(transfer) : give_up_receive(transfer);
}

bool MpiFabric::Impl::give_up_send(Transfer& transfer) {
  // Never MPI_Cancel: Open MPI ignores it for sends, MPICH ends the process over it when the peer is dead.
  graveyard_.bury_dangerous(take_out(transfer), transfer);
  graveyard_.look_at_all();
  if (is_lost(transfer.peer)) {
    return false;
  }
  send_notice(About::withdrawn, transfer.peer, transfer.tag, is_large(transfer));
  const auto begin = Clock::now();
  auto& no_patience_until = no_patience_until_[index(transfer.peer)];
  while (graveyard_.is_dangerous(transfer.peer, transfer.tag) && begin >= no_patience_until) {
    if (is_lost(transfer.peer) || Clock::now() >= begin + kPatienceWithReader) {
      no_patience_until = Clock::now() + kImpatience;
    }
    sched_yield();
    read_notices();
    graveyard_.look_at_all();
  }
  return false;
}

bool MpiFabric::Impl::is_out_of_patience(Rank peer, Clock::time_point begin) {
  const auto now = Clock::now();
  if (!is_lost(peer)) {
    return now >= begin + kPatienceWithLiving;
  }
  auto& until = patience_with_lost_until_[index(peer)];
  if (until == Clock::time_point{}) {
    until = now + kPatienceWithLost;
  }
  return now >= until;
}

bool MpiFabric::Impl::give_up_receive(Transfer& transfer) {
  if (open_[transfer.token].request == MPI_REQUEST_NULL) {
    (void)take_out(transfer);
    return false;
  }
  if (!is_large(transfer)) {
    MPI_Cancel(&open_[transfer.token].request);
  }
  const auto begin = Clock::now();
  for (;;) {
    int flag = 0;
    MPI_Status status;
    const int code = MPI_Test(&open_[transfer.token].request, &flag, &status);
    if (code != MPI_SUCCESS || flag != 0) {
      int cancelled = 0;
      if (code == MPI_SUCCESS) {
        MPI_Test_cancelled(&status, &cancelled);
      }
      if (cancelled == 0) {
        complete(transfer, code, status);
      } else {
        (void)take_out(transfer);
      }
      return cancelled == 0;
    }
    if (is_out_of_patience(transfer.peer, begin)) {
      graveyard_.bury_dangerous(take_out(transfer), transfer);
      return false;
    }
    sched_yield();
  }
}

void MpiFabric::Impl::send_notice(About about, Rank peer, Tag tag, bool large) {
  const Notice notice = {static_cast<std::uint32_t>(about), tag.epoch, tag.sequence, large ? 1U : 0U};
  auto memory = std::make_unique<std::byte[]>(sizeof notice);
  std::memcpy(memory.get(), &notice, sizeof notice);
  MPI_Request request = MPI_REQUEST_NULL;
  if (MPI_Isend(memory.get(), sizeof notice, MPI_BYTE, peer.value, kMpiNoticeTag, MPI_COMM_WORLD, &request) ==
      MPI_SUCCESS) {
    graveyard_.bury(request, peer, std::move(memory));
  }
}

void MpiFabric::Impl::expect_notice() {
  const int code = MPI_Irecv(notice_in_.get(), sizeof(Notice), MPI_BYTE, MPI_ANY_SOURCE, kMpiNoticeTag, MPI_COMM_WORLD,
                             &notice_request_);
  check(code == MPI_SUCCESS, "a receive from anyone can always be posted");
}

/// After the call returned, a notice that had arrived before it was read: MPICH looks at a few arrivals each time only.
void MpiFabric::Impl::read_all_notices() {
  for (int look = 0; look < 4; ++look) {
    read_notices();
  }
}

void MpiFabric::Impl::read_notices() {
  for (;;) {
    int flag = 0;
    MPI_Status status;
    if (MPI_Test(&notice_request_, &flag, &status) != MPI_SUCCESS || flag == 0) {
      return;
    }
    Notice notice;
    std::memcpy(&notice, notice_in_.get(), sizeof notice);
    expect_notice();
    const Rank peer{status.MPI_SOURCE};
    const Tag tag{notice[1], notice[2]};
    if (static_cast<About>(notice[0]) == About::never_read) {
      graveyard_.mark_harmless(peer, tag);
    } else {
      take_withdrawal(peer, tag, notice[3] != 0);
    }
  }
}

/// MPI keeps the order of messages between two ranks, so the message has come before the notice about it. Either it is
/// being received or was so before: then MPI ends it at both ends. Or it is small, so it is here, and is thrown away.
/// Or its bytes are still with the sender, who may free that memory now: it must not be received, so its envelope is
/// taken out of MPI's queue, and nothing else is ever done with it.
void MpiFabric::Impl::take_withdrawal(Rank peer, Tag tag, bool large) {
  bool is_being_received = false;
  for (Open& open : open_) {
    const Transfer& transfer = *open.transfer;
    if (!transfer.sends && transfer.peer == peer && transfer.tag == tag && is_large(transfer) == large) {
      open.withdrawn = true;
      is_being_received = open.request != MPI_REQUEST_NULL;
    }
  }
  if (is_being_received) {
    return;
  }
  if (!large) {
    (void)throw_away(peer, tag, large);
    return;
  }
  int flag = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  if (MPI_Improbe(peer.value, mpi_tag(tag, true), MPI_COMM_WORLD, &flag, &message, MPI_STATUS_IGNORE) == MPI_SUCCESS &&
      flag != 0) {
    send_notice(About::never_read, peer, tag, true);
  }
}

/// Receives a message, if it is there, into memory of our own, so that its sender gets rid of it.
bool MpiFabric::Impl::throw_away(Rank peer, Tag tag, bool large, int* bytes_out) {
  int flag = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  if (MPI_Improbe(peer.value, mpi_tag(tag, large), MPI_COMM_WORLD, &flag, &message, &status) != MPI_SUCCESS ||
      flag == 0) {
    return false;
  }
  int bytes = 0;
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  auto memory = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(bytes));
  MPI_Request request = MPI_REQUEST_NULL;
  if (MPI_Imrecv(memory.get(), bytes, MPI_BYTE, &message, &request) == MPI_SUCCESS) {
    graveyard_.bury(request, peer, std::move(memory));
  }
  if (bytes_out != nullptr) {
    *bytes_out = bytes;
  }
  return true;
}

}  // namespace distbelief

#endif
