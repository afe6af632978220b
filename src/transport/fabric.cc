#include "transport/fabric.h"

#include "base/check.h"

namespace distbelief {
namespace {

void fill_in(const Fabric& fabric, Transfer& transfer, Rank peer, Tag tag) {
  check(transfer.state == Transfer::State::idle, "a transfer is posted once at a time");
  check(peer.value >= 0 && peer.value < fabric.size() && peer != fabric.rank(), "a peer is another rank of the job");
  check(transfer.bytes <= Fabric::kMaxMessageBytes, "a message has at most 1 GiB");
  transfer.peer = peer;
  transfer.tag = tag;
  transfer.outcome = {};
  transfer.state = Transfer::State::posted;
}

}  // namespace

void Fabric::send(Transfer& transfer, Rank peer, Tag tag, std::span<const std::byte> data) {
  transfer.sends = true;
  transfer.data = const_cast<std::byte*>(data.data());  // only read: sends says so
  transfer.bytes = data.size();
  fill_in(*this, transfer, peer, tag);
  sent_bytes_.fetch_add(data.size(), std::memory_order_relaxed);
  post(transfer);
}

void Fabric::receive(Transfer& transfer, Rank peer, Tag tag, std::span<std::byte> into) {
  transfer.sends = false;
  transfer.data = into.data();
  transfer.bytes = into.size();
  fill_in(*this, transfer, peer, tag);
  post(transfer);
}

}  // namespace distbelief
