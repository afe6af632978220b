#ifdef DISTBELIEF_HAS_MPI

#include "transport/mpi/mpi_fabric.h"

#include <sched.h>

#include <thread>

#include "base/check.h"
#include "base/error.h"
#include "transport/mpi/mpi_fabric_impl.h"

namespace distbelief {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// Between two looks a waiting thread does nothing at first, which is for an answer that is being written now; then it
// gives its core away; then it sleeps.
constexpr microseconds kSpinFor{2};
constexpr microseconds kYieldFor{100};
constexpr microseconds kShortNap{25};
constexpr milliseconds kShortNapsFor{2};
constexpr microseconds kLongNap{50};
constexpr milliseconds kLongNapsFor{100};
constexpr milliseconds kIdleNap{1};

constexpr std::size_t kOtherLooks = 4;
constexpr unsigned kTurnsBetweenRareLooks = 64;

}  // namespace

std::string mpi_error_text(int code) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  return "MPI: " + std::string(text, static_cast<std::size_t>(length));
}

MpiFabric::Impl::Impl(MpiWorld& world)
    : world_(world),
      notice_in_(std::make_unique<std::byte[]>(sizeof(Notice))),
      patience_with_lost_until_(static_cast<std::size_t>(world.size())),
      no_patience_until_(static_cast<std::size_t>(world.size())),
      drained_(static_cast<std::size_t>(world.size())),
      lost_(static_cast<std::size_t>(world.size())),
      reasons_(static_cast<std::size_t>(world.size())) {
  void* highest_tag = nullptr;
  int known = 0;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &highest_tag, &known);
  if (known == 0 || *static_cast<int*>(highest_tag) < kMpiNoticeTag) {
    throw Error(fmt::format("{} has too few tags: {} are needed", world.library(), kMpiNoticeTag));
  }
  expect_notice();
}

void MpiFabric::Impl::post(Transfer& transfer) {
  if (is_lost(transfer.peer)) {
    finish(transfer, lost_outcome(transfer.peer));
    return;
  }
  if (ended_.contains(transfer.tag.epoch)) {
    finish(transfer, ended_outcome(transfer));
    return;
  }
  if (++turns_ % kTurnsBetweenRareLooks == 0) {
    graveyard_.look();
  }
  Open open;
  open.transfer = &transfer;
  const bool large = is_large(transfer);
  const int bytes = static_cast<int>(transfer.bytes);  // kMaxMessageBytes fits
  int code = MPI_SUCCESS;
  if (transfer.sends) {
    code = MPI_Isend(transfer.data, bytes, MPI_BYTE, transfer.peer.value, mpi_tag(transfer.tag, large), MPI_COMM_WORLD,
                     &open.request);
  } else if (!large) {
    code = MPI_Irecv(transfer.data, bytes, MPI_BYTE, transfer.peer.value, mpi_tag(transfer.tag, large), MPI_COMM_WORLD,
                     &open.request);
  } else {
    unmatched_.push_back(&transfer);
  }
  if (code != MPI_SUCCESS) {
    finish(transfer, {Outcome::Kind::peer_lost, transfer.peer, mpi_error_text(code)});
    return;
  }
  transfer.token = open_.size();
  open_.push_back(open);
}

Outcome MpiFabric::Impl::wait(Transfer& transfer, Clock::time_point deadline) {
  check(transfer.state != Transfer::State::idle, "only what was posted can be waited for");
  if (!advance(transfer)) {
    const auto begin = Clock::now();
    while (!progress(transfer)) {
      const auto now = Clock::now();
      if (now >= deadline) {
        if (!give_up(transfer)) {
          finish(transfer, {Outcome::Kind::timed_out, transfer.peer, "did not answer in time"});
        }
        break;
      }
      pause(now - begin);
    }
  }
  transfer.state = Transfer::State::idle;
  return std::move(transfer.outcome);
}

void MpiFabric::Impl::pause(Clock::duration waited) {
  if (waited < kSpinFor) {
    return;
  }
  if (waited < kYieldFor) {
    sched_yield();
    return;
  }
  read_notices();
  graveyard_.look();
  std::this_thread::sleep_for(waited < kShortNapsFor  ? kShortNap
                              : waited < kLongNapsFor ? kLongNap
                                                      : microseconds(kIdleNap));
}

bool MpiFabric::Impl::progress(Transfer& transfer) {
  look_for_others();
  return advance(transfer);
}

/// True when the transfer is finished.
bool MpiFabric::Impl::advance(Transfer& transfer) {
  if (transfer.state == Transfer::State::posted && open_[transfer.token].request == MPI_REQUEST_NULL) {
    look_for(transfer);
  }
  if (transfer.state != Transfer::State::posted) {
    return transfer.state == Transfer::State::finished;
  }
  int flag = 0;
  MPI_Status status;
  MPI_Request& request = open_[transfer.token].request;
  const int code = request == MPI_REQUEST_NULL ? MPI_SUCCESS : MPI_Test(&request, &flag, &status);
  if (code != MPI_SUCCESS || flag != 0) {
    complete(transfer, code, status);
    return true;
  }
  if (is_lost(transfer.peer)) {
    if (!give_up(transfer)) {
      finish(transfer, lost_outcome(transfer.peer));
    }
    return true;
  }
  if (ended_.contains(transfer.tag.epoch)) {
    if (!give_up(transfer)) {
      finish(transfer, ended_outcome(transfer));
    }
    return true;
  }
  return ++turns_ % kTurnsBetweenRareLooks == 0 && look_for_other_length(transfer);
}

/// Large receives that nobody waits for at the moment: their senders may be waiting.
void MpiFabric::Impl::look_for_others() {
  for (std::size_t i = 0; i < kOtherLooks && !unmatched_.empty(); ++i) {
    next_unmatched_ = (next_unmatched_ + 1) % unmatched_.size();
    look_for(*unmatched_[next_unmatched_]);
  }
}

/// Begins to receive a large message if it is there and as long as expected.
void MpiFabric::Impl::look_for(Transfer& transfer) {
  if (open_[transfer.token].withdrawn) {
    (void)take_out(transfer);
    finish(transfer, {Outcome::Kind::timed_out, transfer.peer, "gave the exchange up"});
    return;
  }
  int flag = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  if (is_lost(transfer.peer) ||
      MPI_Improbe(transfer.peer.value, mpi_tag(transfer.tag, true), MPI_COMM_WORLD, &flag, &message, &status) !=
          MPI_SUCCESS ||
      flag == 0) {
    return;
  }
  read_all_notices();
  if (open_[transfer.token].withdrawn) {  // the envelope is taken out and the message left where it is, for good
    send_notice(About::never_read, transfer.peer, transfer.tag, true);
    return;
  }
  int bytes = 0;
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  if (static_cast<std::size_t>(bytes) != transfer.bytes) {
    auto memory = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(bytes));
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Imrecv(memory.get(), bytes, MPI_BYTE, &message, &request);
    graveyard_.bury(request, transfer.peer, std::move(memory));
    finish_mismatch(transfer, bytes);
    return;
  }
  std::erase(unmatched_, &transfer);
  MPI_Imrecv(transfer.data, bytes, MPI_BYTE, &message, &open_[transfer.token].request);
}

/// A message of the right tag that is large where a small one is expected, or the other way round, is never received.
/// True when there is one; the transfer is then finished.
bool MpiFabric::Impl::look_for_other_length(Transfer& transfer) {
  int bytes = 0;
  if (transfer.sends || !throw_away(transfer.peer, transfer.tag, !is_large(transfer), &bytes)) {
    return false;
  }
  MPI_Request& request = open_[transfer.token].request;
  if (request != MPI_REQUEST_NULL) {
    MPI_Cancel(&request);  // small, so it ends at once
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  finish_mismatch(transfer, bytes);
  return true;
}

/// Finishes an open transfer that MPI has completed.
void MpiFabric::Impl::complete(Transfer& transfer, int code, const MPI_Status& status) {
  // A notice that was sent before the sender touched its memory again has arrived by now.
  if (!transfer.sends && is_large(transfer)) {
    read_all_notices();
  } else if (!transfer.sends) {
    read_notices();
  }
  const bool withdrawn = open_[transfer.token].withdrawn;
  int kind = MPI_SUCCESS;
  MPI_Error_class(code, &kind);
  int received = 0;
  if (code == MPI_SUCCESS && !transfer.sends) {
    MPI_Get_count(&status, MPI_BYTE, &received);
  }
  if (kind == MPI_ERR_TRUNCATE) {
    finish_mismatch(transfer, -1);
    return;
  }
  if (code == MPI_SUCCESS && !withdrawn && !transfer.sends && static_cast<std::size_t>(received) != transfer.bytes) {
    finish_mismatch(transfer, received);
    return;
  }
  (void)take_out(transfer);
  if (code != MPI_SUCCESS) {
    world_.leave_without_finalize();
    finish(transfer, {Outcome::Kind::peer_lost, transfer.peer, mpi_error_text(code)});
  } else if (withdrawn) {
    finish(transfer, {Outcome::Kind::timed_out, transfer.peer, "gave the exchange up"});
  } else {
    finish(transfer, {});
  }
}

/// `received` is negative when MPI did not say how long the message was.
void MpiFabric::Impl::finish_mismatch(Transfer& transfer, int received) {
  (void)take_out(transfer);
  const std::string sent = received < 0 ? "more" : fmt::format("{} bytes", received);
  finish(transfer, {Outcome::Kind::mismatch, transfer.peer,
                    fmt::format("sent {} where {} bytes were expected", sent, transfer.bytes)});
}

/// The transfer's request, which is no longer among the open ones.
MPI_Request MpiFabric::Impl::take_out(const Transfer& transfer) {
  Open& place = open_[transfer.token];
  const MPI_Request request = place.request;
  if (!transfer.sends && is_large(transfer)) {
    std::erase(unmatched_, &transfer);
  }
  place = open_.back();
  place.transfer->token = transfer.token;
  open_.pop_back();
  return request;
}

MpiFabric::MpiFabric(MpiWorld& world) : impl_(std::make_unique<Impl>(world)) {}
MpiFabric::~MpiFabric() = default;
Rank MpiFabric::rank() const { return impl_->world().rank(); }
int MpiFabric::size() const { return impl_->world().size(); }
Outcome MpiFabric::wait(Transfer& transfer, Clock::time_point deadline) { return impl_->wait(transfer, deadline); }
bool MpiFabric::progress(Transfer& transfer) { return impl_->progress(transfer); }
void MpiFabric::cancel(Transfer& transfer) { impl_->cancel(transfer); }
void MpiFabric::lose(Rank peer, const std::string& reason) { impl_->lose(peer, reason); }
void MpiFabric::end_epoch(std::uint32_t epoch, const std::string& reason) { impl_->end_epoch(epoch, reason); }
bool MpiFabric::memory_unsafe() { return impl_->memory_unsafe(); }
void MpiFabric::post(Transfer& transfer) { impl_->post(transfer); }

}  // namespace distbelief

#endif
