#include "server/replica_sender.h"

#include <algorithm>

namespace distbelief {

ReplicaSender::ReplicaSender(Fabric& fabric, ReplicaLog& log, std::uint32_t view, FirstTurn first_turn)
    : fabric_(fabric),
      log_(log),
      view_(view),
      first_turn_(std::move(first_turn)),
      backup_(log.finish_change()),
      backups_before_(log.backups_before()),
      turn_(this->first_turn()) {}

ReplicaSender::~ReplicaSender() { give_up(); }

void ReplicaSender::give_up() {
  for (Slot& slot : slots_) {
    for (PendingTransfer* transfer : {&slot.head_out, &slot.body_out, &slot.ack_in}) {
      transfer->give_up(fabric_);
    }
    slot.entry = nullptr;
  }
}

bool ReplicaSender::advance() {
  bool moved = false;
  if (const std::uint64_t before = log_.backups_before(); before != backups_before_) {
    give_up();
    backups_before_ = before;
    backup_ = log_.finish_change();
    lost_ = false;
    turn_ = first_turn();
    moved = true;
  }
  if (!backup_ || lost_) {
    return moved;
  }
  for (Slot& slot : slots_) {
    if (slot.entry == nullptr) {
      continue;
    }
    Outcome outcome;
    const bool sent = slot.head_out.ended(fabric_, outcome) && slot.body_out.ended(fabric_, outcome);
    if (!sent || !slot.ack_in.ended(fabric_, outcome)) {
      if (outcome.ok()) {
        continue;
      }
    }
    moved = true;
    if (!outcome.ok() || slot.ack.position != slot.head.position) {
      lost_ = true;  // what is here waits until the log has another
      return moved;
    }
    log_.acknowledged(*slot.entry);
    slot.entry = nullptr;
  }
  for (Slot* slot = &slots_[turn_ % kReplicaSlots]; slot->entry == nullptr; slot = &slots_[turn_ % kReplicaSlots]) {
    ReplicaLog::Entry* entry = log_.next();
    if (entry == nullptr) {
      break;
    }
    begin(*slot, *entry);
    moved = true;
  }
  return moved;
}

void ReplicaSender::begin(Slot& slot, ReplicaLog::Entry& entry) {
  slot.entry = &entry;
  slot.head = {.position = entry.position, .request = entry.request};
  slot.ack = {};
  slot.ack_in.receive(fabric_, *backup_, replica_tag(view_, turn_, Part::reply_head),
                      std::as_writable_bytes(std::span(&slot.ack, 1)));
  slot.head_out.send(fabric_, *backup_, replica_tag(view_, turn_, Part::request_head),
                     std::as_bytes(std::span(&slot.head, 1)));
  if (!entry.body.empty()) {
    slot.body_out.send(fabric_, *backup_, replica_tag(view_, turn_, Part::request_body), entry.body);
  }
  ++turn_;
}

bool ReplicaSender::in_a_message() const {
  return std::ranges::any_of(slots_, [](const Slot& slot) { return slot.entry != nullptr && slot.body_out.open(); });
}

}  // namespace distbelief
