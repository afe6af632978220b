#include "comm/peer_rounds.h"

#include <algorithm>

#include "base/check.h"

namespace distbelief {
namespace {

constexpr std::size_t kMostBytesOfAPiece = Fabric::kMaxMessageBytes / 4;

}  // namespace

PeerRounds::PeerRounds(Group& group, std::size_t bytes, int window)
    : group_(group),
      fabric_(group.fabric()),
      bytes_(bytes),
      pieces_((bytes + kMostBytesOfAPiece - 1) / kMostBytesOfAPiece) {
  check(bytes > 0 && window > 0, "messages have bytes, and at least one can be on its way");
  const auto size = static_cast<std::size_t>(group.size());
  slots_ = std::vector<Slot>(static_cast<std::size_t>(window));
  for (Slot& slot : slots_) {
    slot.memory = Buffer::zeroed(bytes);
    slot.out = std::vector<Message>(size);
    for (Message& message : slot.out) {
      message.pieces = std::vector<Transfer>(pieces_);
    }
  }
  peers_ = std::vector<Peer>(size);
  for (int position = 0; position < group.size(); ++position) {
    if (position != group.position()) {
      Peer& peer = peers_[static_cast<std::size_t>(position)];
      peer.memory = Buffer(bytes);
      peer.in.pieces = std::vector<Transfer>(pieces_);
      expect(position);
    }
  }
}

PeerRounds::~PeerRounds() {
  const auto give_up = [&](Message& message) {
    for (std::size_t piece = message.finished; message.open && piece < pieces_; ++piece) {
      fabric_.cancel(message.pieces[piece]);
    }
  };
  for (Peer& peer : peers_) {
    give_up(peer.in);
  }
  for (Slot& slot : slots_) {
    std::ranges::for_each(slot.out, give_up);
  }
}

Tag PeerRounds::tag(std::uint64_t round, std::size_t piece) const {
  return group_.peer_tag(static_cast<std::uint32_t>(round * pieces_ + piece));
}

std::span<std::byte> PeerRounds::piece_of(const Buffer& memory, std::size_t piece) const {
  const std::size_t begin = piece * kMostBytesOfAPiece;
  return std::span(memory.data(), bytes_).subspan(begin, std::min(kMostBytesOfAPiece, bytes_ - begin));
}

void PeerRounds::expect(int position) {
  Peer& peer = peers_[static_cast<std::size_t>(position)];
  peer.in.finished = 0;
  peer.in.open = true;
  for (std::size_t piece = 0; piece < pieces_; ++piece) {
    fabric_.receive(peer.in.pieces[piece], group_.members()[static_cast<std::size_t>(position)],
                    tag(peer.read + 1, piece), piece_of(peer.memory, piece));
  }
}

bool PeerRounds::ended(Message& message, std::optional<Clock::time_point> deadline) {
  while (outcome_.ok() && message.open) {
    Transfer& piece = message.pieces[message.finished];
    if (!deadline && !fabric_.progress(piece)) {
      return false;
    }
    outcome_ = fabric_.wait(piece, deadline.value_or(Clock::time_point::max()));
    ++message.finished;
    message.open = message.finished < pieces_;
  }
  return outcome_.ok();
}

bool PeerRounds::delivered(Slot& slot) {
  bool all = true;
  for (Message& message : slot.out) {
    all = ended(message) && all;  // each is asked: that is what moves it on
  }
  return all;
}

std::optional<std::span<std::byte>> PeerRounds::outgoing() {
  Slot& next = slot(sent_ + 1);
  if (!delivered(next)) {
    return std::nullopt;
  }
  return std::span(next.memory.data(), bytes_);
}

void PeerRounds::send() {
  Slot& next = slot(++sent_);
  for (int position = 0; position < group_.size(); ++position) {
    if (position == group_.position()) {
      continue;
    }
    Message& message = next.out[static_cast<std::size_t>(position)];
    check(!message.open, "a message is written into memory that nobody reads");
    message.finished = 0;
    message.open = true;
    for (std::size_t piece = 0; piece < pieces_; ++piece) {
      fabric_.send(message.pieces[piece], group_.members()[static_cast<std::size_t>(position)], tag(sent_, piece),
                   piece_of(next.memory, piece));
    }
  }
}

std::optional<std::span<const std::byte>> PeerRounds::arrived(int position) {
  Peer& peer = peers_[static_cast<std::size_t>(position)];
  if (!ended(peer.in)) {
    return std::nullopt;
  }
  return std::span<const std::byte>(peer.memory.data(), bytes_);
}

std::optional<std::span<const std::byte>> PeerRounds::wait_for(int position, Clock::time_point deadline) {
  (void)ended(peers_[static_cast<std::size_t>(position)].in, deadline);
  return arrived(position);
}

void PeerRounds::release(int position) {
  ++peers_[static_cast<std::size_t>(position)].read;
  expect(position);
}

bool PeerRounds::all_delivered() {
  bool all = true;
  for (Slot& slot : slots_) {
    all = delivered(slot) && all;
  }
  return all;
}

void PeerRounds::progress() {
  for (Peer& peer : peers_) {
    (void)ended(peer.in);
  }
  (void)all_delivered();
}

}  // namespace distbelief
