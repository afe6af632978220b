#include "transport/mpi/mpi_fabric.h"

#ifdef DISTBELIEF_HAS_MPI

#include <mpi.h>
#include <sched.h>

#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/error.h"

namespace distbelief {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr microseconds kSpinFor{2};       // as long as an answer takes that is being written now
constexpr microseconds kYieldFor{100};    // then a waiting thread gives its core away after each look
constexpr microseconds kShortNap{25};     // then it sleeps between looks
constexpr milliseconds kShortNapsFor{2};  //
constexpr microseconds kLongNap{50};      // and longer when nothing comes
constexpr milliseconds kPatienceWithMatchedReceive{50};
constexpr milliseconds kDrainAfterDeath{2};
constexpr std::size_t kBuriedLooksAtOnce = 8;
constexpr unsigned kPostsBetweenLooks = 64;

// Open MPI has 31 bits for a tag, MPICH 28. Open transfers of two ranks are never as many as a sequence can tell apart,
// nor groups that live at the same time as many as epochs can.
constexpr int kSequenceBits = 17;
constexpr int kEpochBits = 10;
constexpr int kNoticeTag = 1 << (kSequenceBits + kEpochBits);

int mpi_tag(Tag tag) {
  return static_cast<int>(((tag.epoch & ((1U << kEpochBits) - 1)) << kSequenceBits) |
                          (tag.sequence & ((1U << kSequenceBits) - 1)));
}

std::string error_text(int code) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  return "MPI: " + std::string(text, static_cast<std::size_t>(length));
}

}  // namespace

class MpiFabric::Impl {
 public:
  explicit Impl(MpiWorld& world);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  const MpiWorld& world() const { return world_; }
  void post(Transfer& transfer);
  Outcome wait(Transfer& transfer, Clock::time_point deadline);
  bool advance(Transfer& transfer);
  void cancel(Transfer& transfer);
  void lose(Rank peer, const std::string& reason);
  bool memory_unsafe();

 private:
  struct Open {
    MPI_Request request = MPI_REQUEST_NULL;
    Transfer* transfer = nullptr;
    bool withdrawn = false;  // the sender gave it up; what arrives is not what was sent
  };
  /// What MPI has not ended though we have: its request is tested now and then.
  struct Buried {
    MPI_Request request = MPI_REQUEST_NULL;
    Rank peer = {};
    bool endangers_caller = false;             // MPI may write into memory that is the caller's
    std::unique_ptr<std::byte[]> memory = {};  // what MPI reads or writes, if it is ours
  };
  using Notice = std::array<std::uint32_t, 2>;  // epoch and sequence of a send that was given up

  static void finish(Transfer& transfer, Outcome outcome) {
    transfer.outcome = std::move(outcome);
    transfer.state = Transfer::State::finished;
  }
  std::atomic<bool>& lost(Rank peer) { return lost_[static_cast<std::size_t>(peer.value)]; }
  Outcome lost_outcome(Rank peer);

  MPI_Request take_out(const Transfer& transfer);
  void complete(Transfer& transfer, int code, const MPI_Status& status);
  bool give_up(Transfer& transfer);
  bool give_up_send(Transfer& transfer);
  bool give_up_receive(Transfer& transfer);
  void bury(MPI_Request request, Rank peer, bool endangers_caller, std::unique_ptr<std::byte[]> memory = {});
  void look_at_buried(std::size_t at_most);
  void pause(Clock::duration waited);

  void send_notice(const Transfer& transfer);
  void expect_notice();
  void read_notices();
  void throw_away(Rank peer, Tag tag);

  MpiWorld& world_;
  std::vector<Open> open_;  // a transfer's token is its place here
  std::vector<Buried> buried_;
  std::size_t next_buried_ = 0;
  unsigned posts_ = 0;
  std::unique_ptr<std::byte[]> notice_in_;
  MPI_Request notice_request_ = MPI_REQUEST_NULL;
  std::vector<Clock::time_point> patience_until_;  // by rank: a lost peer's receives share one time to end
  std::vector<bool> drained_;                      // by rank: dead, and what it had sent is processed
  std::vector<std::atomic<bool>> lost_;            // by rank
  std::mutex mutex_;
  std::vector<std::string> reasons_;  // guarded by mutex_; by rank
};

MpiFabric::Impl::Impl(MpiWorld& world)
    : world_(world),
      notice_in_(std::make_unique<std::byte[]>(sizeof(Notice))),
      patience_until_(static_cast<std::size_t>(world.size())),
      drained_(static_cast<std::size_t>(world.size())),
      lost_(static_cast<std::size_t>(world.size())),
      reasons_(static_cast<std::size_t>(world.size())) {
  void* highest_tag = nullptr;
  int known = 0;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &highest_tag, &known);
  if (known == 0 || *static_cast<int*>(highest_tag) < kNoticeTag) {
    throw Error(fmt::format("{} has too few tags: {} are needed", world.library(), kNoticeTag));
  }
  expect_notice();
}

MpiFabric::Impl::~Impl() {
  while (!open_.empty()) {
    (void)give_up(*open_.back().transfer);
  }
  MPI_Cancel(&notice_request_);
  bury(notice_request_, world_.rank(), false, std::move(notice_in_));
  const auto deadline = Clock::now() + kPatienceWithMatchedReceive;
  do {
    look_at_buried(buried_.size());
    sched_yield();
  } while (!buried_.empty() && Clock::now() < deadline);
  for (Buried& buried : buried_) {
    world_.leave_without_finalize();
    [[maybe_unused]] const std::byte* const left_to_mpi =
        buried.memory.release();  // it may be written to until the end
  }
}

void MpiFabric::Impl::post(Transfer& transfer) {
  if (lost(transfer.peer).load(std::memory_order_acquire)) {
    finish(transfer, lost_outcome(transfer.peer));
    return;
  }
  if (!buried_.empty() && ++posts_ % kPostsBetweenLooks == 0) {
    look_at_buried(kBuriedLooksAtOnce);
  }
  Open open;
  open.transfer = &transfer;
  const int bytes = static_cast<int>(transfer.bytes);  // kMaxMessageBytes fits
  const int code = transfer.sends ? MPI_Isend(transfer.data, bytes, MPI_BYTE, transfer.peer.value,
                                              mpi_tag(transfer.tag), MPI_COMM_WORLD, &open.request)
                                  : MPI_Irecv(transfer.data, bytes, MPI_BYTE, transfer.peer.value,
                                              mpi_tag(transfer.tag), MPI_COMM_WORLD, &open.request);
  if (code != MPI_SUCCESS) {
    finish(transfer, {Outcome::Kind::peer_lost, transfer.peer, error_text(code)});
    return;
  }
  transfer.token = open_.size();
  open_.push_back(open);
}

Outcome MpiFabric::Impl::wait(Transfer& transfer, Clock::time_point deadline) {
  check(transfer.state != Transfer::State::idle, "only what was posted can be waited for");
  if (!advance(transfer)) {
    const auto begin = Clock::now();
    while (!advance(transfer)) {
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

/// True when the transfer is finished.
bool MpiFabric::Impl::advance(Transfer& transfer) {
  if (transfer.state != Transfer::State::posted) {
    return transfer.state == Transfer::State::finished;
  }
  int flag = 0;
  MPI_Status status;
  const int code = MPI_Test(&open_[transfer.token].request, &flag, &status);
  if (code == MPI_SUCCESS && flag == 0) {
    if (lost(transfer.peer).load(std::memory_order_acquire)) {
      if (!give_up(transfer)) {
        finish(transfer, lost_outcome(transfer.peer));
      }
      return true;
    }
    return false;
  }
  complete(transfer, code, status);
  return true;
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
  if (!lost(peer).load(std::memory_order_relaxed)) {
    reasons_[static_cast<std::size_t>(peer.value)] = reason;
    world_.leave_without_finalize();
    lost(peer).store(true, std::memory_order_release);
  }
}

Outcome MpiFabric::Impl::lost_outcome(Rank peer) {
  const std::scoped_lock lock(mutex_);
  return {Outcome::Kind::peer_lost, peer, reasons_[static_cast<std::size_t>(peer.value)]};
}

bool MpiFabric::Impl::memory_unsafe() {
  look_at_buried(buried_.size());
  for (std::size_t i = 0; i < buried_.size(); ++i) {
    const Rank peer = buried_[i].peer;
    if (!buried_[i].endangers_caller || drained_[static_cast<std::size_t>(peer.value)]) {
      continue;
    }
    if (!world_.is_certainly_dead(peer)) {
      return true;
    }
    // The dead send no more. What they left on the way is processed within a few looks.
    drained_[static_cast<std::size_t>(peer.value)] = true;
    const auto deadline = Clock::now() + kDrainAfterDeath;
    do {
      look_at_buried(buried_.size());
    } while (Clock::now() < deadline);
    i = static_cast<std::size_t>(-1);  // from the start: the list has changed
  }
  return false;
}

/// The transfer's request, which is no longer among the open ones.
MPI_Request MpiFabric::Impl::take_out(const Transfer& transfer) {
  Open& place = open_[transfer.token];
  const MPI_Request request = place.request;
  place = open_.back();
  place.transfer->token = transfer.token;
  open_.pop_back();
  return request;
}

/// Finishes an open transfer that MPI has completed.
void MpiFabric::Impl::complete(Transfer& transfer, int code, const MPI_Status& status) {
  if (!transfer.sends) {
    read_notices();  // one that was sent before the sender touched the memory again has arrived by now
  }
  const bool withdrawn = open_[transfer.token].withdrawn;
  (void)take_out(transfer);
  int kind = MPI_SUCCESS;
  MPI_Error_class(code, &kind);
  int received = 0;
  if (code == MPI_SUCCESS && !transfer.sends) {
    MPI_Get_count(&status, MPI_BYTE, &received);
  }
  if (kind == MPI_ERR_TRUNCATE) {
    finish(transfer, {Outcome::Kind::mismatch, transfer.peer, fmt::format("sent more than {} bytes", transfer.bytes)});
  } else if (code != MPI_SUCCESS) {
    world_.leave_without_finalize();
    finish(transfer, {Outcome::Kind::peer_lost, transfer.peer, error_text(code)});
  } else if (withdrawn) {
    finish(transfer, {Outcome::Kind::timed_out, transfer.peer, "gave the exchange up"});
  } else if (!transfer.sends && static_cast<std::size_t>(received) != transfer.bytes) {
    finish(transfer, {Outcome::Kind::mismatch, transfer.peer,
                      fmt::format("sent {} bytes where {} were expected", received, transfer.bytes)});
  } else {
    finish(transfer, {});
  }
}

/// False: the transfer is open no more. True: it turned out to be finished. Its memory is left alone from here on, as
/// far as the class comment says.
bool MpiFabric::Impl::give_up(Transfer& transfer) {
  return transfer.sends ? give_up_send(transfer) : give_up_receive(transfer);
}

bool MpiFabric::Impl::give_up_send(Transfer& transfer) {
  MPI_Request request = take_out(transfer);
  if (!lost(transfer.peer).load(std::memory_order_acquire)) {
    send_notice(transfer);
  }
  // Never MPI_Cancel: Open MPI ignores it for sends, MPICH ends the process over it when the peer is dead.
  int flag = 0;
  if (MPI_Test(&request, &flag, MPI_STATUS_IGNORE) == MPI_SUCCESS && flag == 0) {
    bury(request, transfer.peer, false);
  }
  return false;
}

bool MpiFabric::Impl::give_up_receive(Transfer& transfer) {
  MPI_Cancel(&open_[transfer.token].request);
  auto& patience_until = patience_until_[static_cast<std::size_t>(transfer.peer.value)];
  if (!lost(transfer.peer).load(std::memory_order_acquire) || patience_until == Clock::time_point{}) {
    patience_until = Clock::now() + kPatienceWithMatchedReceive;
  }
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
    if (Clock::now() >= patience_until) {
      bury(take_out(transfer), transfer.peer, true);
      return false;
    }
    sched_yield();
  }
}

void MpiFabric::Impl::bury(MPI_Request request, Rank peer, bool endangers_caller, std::unique_ptr<std::byte[]> memory) {
  buried_.push_back({request, peer, endangers_caller, std::move(memory)});
}

void MpiFabric::Impl::look_at_buried(std::size_t at_most) {
  for (std::size_t i = 0; i < at_most && !buried_.empty(); ++i) {
    next_buried_ = next_buried_ < buried_.size() ? next_buried_ : 0;
    Buried& buried = buried_[next_buried_];
    int flag = 0;
    if (MPI_Test(&buried.request, &flag, MPI_STATUS_IGNORE) != MPI_SUCCESS || flag != 0) {
      std::swap(buried, buried_.back());
      buried_.pop_back();
    } else {
      ++next_buried_;
    }
  }
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
  look_at_buried(kBuriedLooksAtOnce);
  std::this_thread::sleep_for(waited < kShortNapsFor ? kShortNap : kLongNap);
}

/// Tells the peer that this send was given up, so that it does not take what the memory will hold later for the
/// message.
void MpiFabric::Impl::send_notice(const Transfer& transfer) {
  const Notice notice = {transfer.tag.epoch, transfer.tag.sequence};
  auto memory = std::make_unique<std::byte[]>(sizeof notice);
  std::memcpy(memory.get(), &notice, sizeof notice);
  MPI_Request request = MPI_REQUEST_NULL;
  if (MPI_Isend(memory.get(), sizeof notice, MPI_BYTE, transfer.peer.value, kNoticeTag, MPI_COMM_WORLD, &request) ==
      MPI_SUCCESS) {
    bury(request, transfer.peer, false, std::move(memory));
  }
}

void MpiFabric::Impl::expect_notice() {
  const int code = MPI_Irecv(notice_in_.get(), sizeof(Notice), MPI_BYTE, MPI_ANY_SOURCE, kNoticeTag, MPI_COMM_WORLD,
                             &notice_request_);
  check(code == MPI_SUCCESS, "a receive from anyone can always be posted");
}

void MpiFabric::Impl::read_notices() {
  for (;;) {
    int flag = 0;
    MPI_Status status;
    if (MPI_Test(&notice_request_, &flag, &status) != MPI_SUCCESS || flag == 0) {
      return;
    }
    const Rank peer{status.MPI_SOURCE};
    Notice notice;
    std::memcpy(&notice, notice_in_.get(), sizeof notice);
    const Tag tag{notice[0], notice[1]};
    expect_notice();
    bool was_asked_for = false;
    for (Open& open : open_) {
      if (!open.transfer->sends && open.transfer->peer == peer && open.transfer->tag == tag) {
        open.withdrawn = true;
        was_asked_for = true;
      }
    }
    if (!was_asked_for) {
      throw_away(peer, tag);
    }
  }
}

/// Receives a message into memory of our own, so that its sender gets rid of it. MPI keeps the order of messages
/// between two ranks, so it has come before the notice about it; if it is not there, it had been received before.
void MpiFabric::Impl::throw_away(Rank peer, Tag tag) {
  int flag = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  if (MPI_Improbe(peer.value, mpi_tag(tag), MPI_COMM_WORLD, &flag, &message, &status) != MPI_SUCCESS || flag == 0) {
    return;
  }
  int bytes = 0;
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  auto memory = std::make_unique<std::byte[]>(static_cast<std::size_t>(bytes));
  MPI_Request request = MPI_REQUEST_NULL;
  if (MPI_Imrecv(memory.get(), bytes, MPI_BYTE, &message, &request) == MPI_SUCCESS) {
    bury(request, peer, false, std::move(memory));
  }
}

MpiFabric::MpiFabric(MpiWorld& world) : impl_(std::make_unique<Impl>(world)) {}
MpiFabric::~MpiFabric() = default;
Rank MpiFabric::rank() const { return impl_->world().rank(); }
int MpiFabric::size() const { return impl_->world().size(); }
Outcome MpiFabric::wait(Transfer& transfer, Clock::time_point deadline) { return impl_->wait(transfer, deadline); }
bool MpiFabric::progress(Transfer& transfer) { return impl_->advance(transfer); }
void MpiFabric::cancel(Transfer& transfer) { impl_->cancel(transfer); }
void MpiFabric::lose(Rank peer, const std::string& reason) { impl_->lose(peer, reason); }
bool MpiFabric::memory_unsafe() { return impl_->memory_unsafe(); }
void MpiFabric::post(Transfer& transfer) { impl_->post(transfer); }

}  // namespace distbelief

#endif
