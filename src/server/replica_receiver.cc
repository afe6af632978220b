#include "server/replica_receiver.h"

#include <algorithm>

#include "base/parallel.h"
#include "server/server_port.h"

namespace distbelief {

ReplicaReceiver::ReplicaReceiver(Fabric& fabric, OrderedServer& backup, Rank primary, std::uint32_t view,
                                 std::function<void()> wake, std::uint32_t first_turn)
    : fabric_(fabric),
      backup_(backup),
      primary_(primary),
      view_(view),
      wake_(std::move(wake)),
      repeats_itself_(backup.server().floats() <= ServerPort::kFewFloats),
      next_(first_turn) {
  for (std::uint32_t turn = first_turn; turn < first_turn + kReplicaSlots; ++turn) {
    Slot& slot = slots_[turn % kReplicaSlots];
    slot.turn = turn;
    listen(slot);
  }
  if (!repeats_itself_) {
    thread_ = std::jthread([this](const std::stop_token& stop) {
      set_thread_count(1);
      while (true) {
        Slot& slot = slots_[next_ % kReplicaSlots];
        {
          std::unique_lock lock(mutex_);
          if (!changed_.wait(lock, stop, [&] { return slot.state == State::received; })) {
            return;
          }
        }
        ++next_;
        repeat(slot);
        wake_();
      }
    });
  }
}

ReplicaReceiver::~ReplicaReceiver() { (void)end(); }

std::uint32_t ReplicaReceiver::end() {
  thread_ = {};
  close();
  return next_ + kReplicaSlots;
}

void ReplicaReceiver::close() {
  for (Slot& slot : slots_) {
    for (PendingTransfer* transfer : {&slot.head_in, &slot.body_in, &slot.ack_out}) {
      transfer->give_up(fabric_);
    }
    if (slot.state != State::received) {  // which another thread may look at
      slot.state = State::closed;
    }
  }
}

void ReplicaReceiver::listen(Slot& slot) {
  slot.state = State::head;
  slot.head_in.receive(fabric_, primary_, replica_tag(view_, slot.turn, Part::request_head),
                       std::as_writable_bytes(std::span(&slot.head, 1)));
}

bool ReplicaReceiver::advance() {
  bool moved = false;
  for (Slot& slot : slots_) {
    moved = advance(slot) || moved;
  }
  return moved;
}

bool ReplicaReceiver::arrived(PendingTransfer& transfer) {
  Outcome outcome;
  if (!transfer.ended(fabric_, outcome)) {
    return false;
  }
  if (!outcome.ok()) {
    close();
  }
  return outcome.ok();
}

bool ReplicaReceiver::advance(Slot& slot) {
  switch (slot.state.load(std::memory_order_acquire)) {
    case State::head:
      if (!arrived(slot.head_in)) {
        return false;
      }
      if (!backup_.is_for_backup(slot.head)) {
        close();
        return true;
      }
      if (slot.head.request.body_bytes == 0) {
        received(slot);
        return true;
      }
      if (slot.body.bytes() < slot.head.request.body_bytes) {
        slot.body = Buffer(slot.head.request.body_bytes);
      }
      slot.state = State::body;
      slot.body_in.receive(fabric_, primary_, replica_tag(view_, slot.turn, Part::request_body),
                           {slot.body.data(), static_cast<std::size_t>(slot.head.request.body_bytes)});
      return true;
    case State::body:
      if (!arrived(slot.body_in)) {
        return false;
      }
      received(slot);
      return true;
    case State::received:
      if (repeats_itself_ && slot.turn == next_) {
        ++next_;
        repeat(slot);
        return true;
      }
      return false;
    case State::repeated:
      slot.state = State::acknowledging;
      slot.ack = {.position = slot.head.position};
      slot.ack_out.send(fabric_, primary_, replica_tag(view_, slot.turn, Part::reply_head),
                        std::as_bytes(std::span(&slot.ack, 1)));
      return true;
    case State::acknowledging:
      if (!arrived(slot.ack_out)) {
        return false;
      }
      slot.turn += kReplicaSlots;
      listen(slot);
      return true;
    case State::closed:
      return false;
  }
  return false;
}

void ReplicaReceiver::received(Slot& slot) {
  const std::scoped_lock lock(mutex_);
  slot.state = State::received;
  changed_.notify_one();
}

void ReplicaReceiver::repeat(Slot& slot) {
  const bool done = backup_.repeat(slot.head, body_of(slot));
  slot.state.store(done ? State::repeated : State::closed, std::memory_order_release);
}

bool ReplicaReceiver::has_ended() const {
  const auto is = [](State wanted) {
    return [wanted](const Slot& slot) { return slot.state.load(std::memory_order_acquire) == wanted; };
  };
  return std::ranges::all_of(slots_, is(State::closed)) ||
         (backup_.is_dismissed() && std::ranges::all_of(slots_, is(State::head)));
}

bool ReplicaReceiver::in_a_message() const {
  return std::ranges::any_of(
      slots_, [](const Slot& slot) { return slot.state.load(std::memory_order_relaxed) == State::body; });
}

}  // namespace distbelief
