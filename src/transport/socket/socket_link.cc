#include "transport/socket/socket_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"

namespace distbelief {
namespace {

constexpr std::size_t kStagingBytes = 16 * 1024;
constexpr std::size_t kThrowAwayBytes = 256 * 1024;
/// With checksums, so much goes at once that it is still in the cache for the second who touches it.
constexpr std::size_t kSummedAtOnce = 256 * 1024;
constexpr std::size_t kBytesInARow = 4 << 20;  // then it is the turn of other links

}  // namespace

SocketLink::SocketLink(Rank peer, std::unique_ptr<Stream> stream, bool checksums, std::size_t most_early,
                       EarlyMemory& memory)
    : peer_(peer),
      stream_(std::move(stream)),
      checksums_(checksums),
      most_early_(most_early),
      early_memory_(memory),
      staging_(kStagingBytes) {}

void SocketLink::finish(Transfer& transfer, Outcome::Kind kind, const std::string& reason) {
  transfer.outcome = {kind, peer_, reason};
  transfer.state = Transfer::State::finished;
}

void SocketLink::post(Transfer& transfer) {
  if (const auto ended = ended_.find(transfer.tag.epoch); ended != ended_.end() && !lost_) {
    finish(transfer, Outcome::Kind::interrupted, ended->second);
    return;
  }
  if (!transfer.sends) {
    post_receive(transfer);
    return;
  }
  if (lost_) {
    finish(transfer, Outcome::Kind::peer_lost, *lost_);
    return;
  }
  FrameHeader header;
  header.kind = static_cast<std::uint16_t>(DataFrame::data);
  header.length = static_cast<std::uint32_t>(transfer.bytes);
  header.epoch = transfer.tag.epoch;
  header.sequence = transfer.tag.sequence;
  header.payload_checksum = checksums_;
  sends_.push_back({&transfer, encode_frame_header(header), transfer.data, transfer.bytes});
  if (sends_.size() == 1) {
    write_some();
  }
}

void SocketLink::post_receive(Transfer& transfer) {
  const auto found = early_.find(key_of(transfer.tag));
  if (found == early_.end()) {
    if (lost_) {
      finish(transfer, Outcome::Kind::peer_lost, *lost_);
      return;
    }
    unwanted_.erase(key_of(transfer.tag));
    receives_[key_of(transfer.tag)] = &transfer;
    return;
  }
  Early& early = found->second;
  const bool arriving = message_.early == &early;
  if (early.bytes != transfer.bytes) {
    finish(transfer, Outcome::Kind::mismatch,
           fmt::format("sent a message of {} bytes where {} were expected", early.bytes, transfer.bytes));
  } else {
    const bool partly = arriving && message_.stage == Incoming::Stage::payload;
    if (const std::size_t came = partly ? message_.filled : early.bytes; came > 0) {
      std::memcpy(transfer.data, early.data.get(), came);
    }
    if (!arriving) {
      finish(transfer, Outcome::Kind::done, {});
    }
  }
  if (arriving) {  // the rest goes straight to the receiver
    message_.early = nullptr;
    message_.into = transfer.state == Transfer::State::posted ? &transfer : nullptr;
  }
  early_bytes_ -= early.bytes;
  early_.erase(found);
}

void SocketLink::cancel(Transfer& transfer) {
  if (!transfer.sends) {
    if (message_.into == &transfer) {
      message_.into = nullptr;
    } else if (receives_.erase(key_of(transfer.tag)) > 0) {
      unwanted_.insert(key_of(transfer.tag));
    }
    return;
  }
  const auto found = std::ranges::find(sends_, &transfer, &Outgoing::transfer);
  check(found != sends_.end(), "a send that is not finished is in its link's queue");
  if (!found->begun) {
    sends_.erase(found);
    return;
  }
  // The peer may have the header and wait for the rest, but the memory is the caller's again: send a copy.
  const std::size_t sent = std::min(std::max(found->written, kFrameHeaderBytes) - kFrameHeaderBytes, found->bytes);
  found->kept.assign(found->payload + sent, found->payload + found->bytes);
  found->kept_from = sent;
  found->transfer = nullptr;
}

bool SocketLink::move_bytes() {
  const bool wrote = write_some();
  const bool read = read_some();
  return wrote || read;
}

bool SocketLink::write_some() {
  std::size_t moved_bytes = 0;
  tls_wants_read_ = false;
  while (!lost_ && !sends_.empty() && moved_bytes < kBytesInARow) {
    Outgoing& out = sends_.front();
    out.begun = true;
    const std::size_t payload_from = std::max(out.written, kFrameHeaderBytes) - kFrameHeaderBytes;
    std::array<iovec, 3> parts;
    std::size_t count = 0;
    if (out.written < kFrameHeaderBytes) {
      parts[count++] = {out.head.data() + out.written, kFrameHeaderBytes - out.written};
    }
    std::size_t chunk = out.bytes - std::min(payload_from, out.bytes);
    if (checksums_) {
      chunk = std::min(chunk, kSummedAtOnce);
    }
    const auto at = [&](std::size_t position) {
      return out.transfer != nullptr ? out.payload + position : out.kept.data() + (position - out.kept_from);
    };
    if (chunk > 0) {
      parts[count++] = {const_cast<std::byte*>(at(payload_from)), chunk};  // only read from
      if (checksums_ && payload_from + chunk > out.summed) {
        out.crc = crc32c({at(out.summed), payload_from + chunk - out.summed}, out.crc);
        out.summed = payload_from + chunk;
      }
    }
    const std::size_t trailer = checksums_ ? kFrameTrailerBytes : 0;
    if (trailer > 0 && payload_from + chunk >= out.bytes) {
      const std::size_t skip = payload_from > out.bytes ? payload_from - out.bytes : 0;
      parts[count++] = {reinterpret_cast<std::byte*>(&out.crc) + skip, kFrameTrailerBytes - skip};
    }
    Moved moved = stream_->write(std::span(parts).first(count));
    if (moved.state == Moved::State::closed) {
      // What the peer sent before it closed can still be received.
      while (!lost_ && read_some()) {
      }
      lose(moved.reason, false);
      return true;
    }
    if (moved.state != Moved::State::moved) {
      tls_wants_read_ = moved.state == Moved::State::wants_read;
      break;
    }
    out.written += moved.bytes;
    moved_bytes += moved.bytes;
    if (out.written == kFrameHeaderBytes + out.bytes + trailer) {
      if (out.transfer != nullptr) {
        finish(*out.transfer, Outcome::Kind::done, {});
      }
      sends_.pop_front();
    }
  }
  return moved_bytes > 0;
}

bool SocketLink::read_some() {
  std::size_t moved_bytes = 0;
  tls_wants_write_ = false;
  finished_some_ = false;
  while (!lost_ && moved_bytes < kBytesInARow) {
    if (!use_staged()) {
      break;
    }
    std::array<iovec, 2> parts;
    std::size_t count = 0;
    std::size_t room = 0;
    if (message_.stage == Incoming::Stage::payload) {
      std::byte* target = payload_target(room);
      parts[count++] = {target, room};
    }
    // Behind the payload stands what is short: a trailer, the next header. Not behind a part of it.
    if (room == 0 || message_.filled + room == message_.header.length) {
      parts[count++] = {staging_.data(), staging_.size()};
    }
    const Moved moved = stream_->read(std::span(parts).first(count));
    if (moved.state == Moved::State::closed) {
      lose(moved.reason, false);
      return true;
    }
    if (moved.state != Moved::State::moved) {
      tls_wants_write_ = moved.state == Moved::State::wants_write;
      break;
    }
    moved_bytes += moved.bytes;
    const std::size_t direct = std::min(moved.bytes, room);
    staged_from_ = 0;
    staged_to_ = moved.bytes - direct;
    if (direct > 0) {
      payload_came(direct);
    }
  }
  return moved_bytes > 0 || finished_some_;  // then there may be more of what was read already
}

/// Where the next bytes of the payload go, and how many fit.
std::byte* SocketLink::payload_target(std::size_t& room) {
  room = message_.header.length - message_.filled;
  if (message_.header.payload_checksum) {
    room = std::min(room, kSummedAtOnce);
  }
  if (message_.into != nullptr) {
    return message_.into->data + message_.filled;
  }
  if (message_.early != nullptr) {
    return message_.early->data.get() + message_.filled;
  }
  thrown_away_.resize(kThrowAwayBytes);
  room = std::min(room, kThrowAwayBytes);
  return thrown_away_.data();
}

/// They are where payload_target() said.
void SocketLink::payload_came(std::size_t bytes) {
  if (message_.header.payload_checksum) {
    std::size_t room = 0;
    message_.crc = crc32c({payload_target(room), bytes}, message_.crc);
  }
  message_.filled += bytes;
}

/// Uses up the staged bytes. False when the link cannot go on for now.
bool SocketLink::use_staged() {
  using Stage = Incoming::Stage;
  const auto take = [&](std::byte* into, std::size_t most) {
    const std::size_t count = std::min(most, staged_to_ - staged_from_);
    if (count > 0) {
      std::memcpy(into, staging_.data() + staged_from_, count);
      staged_from_ += count;
    }
    return count;
  };
  for (;;) {
    switch (message_.stage) {
      case Stage::head: {
        message_.filled += take(message_.head.data() + message_.filled, kFrameHeaderBytes - message_.filled);
        if (message_.filled < kFrameHeaderBytes) {
          return true;
        }
        ParsedFrameHeader parsed = parse_frame_header(message_.head, Fabric::kMaxMessageBytes);
        if (parsed.ok() && parsed.header.kind != static_cast<std::uint16_t>(DataFrame::data)) {
          parsed.fault = ParsedFrameHeader::Fault::unknown_flags;
          parsed.reason = fmt::format("sent a frame of kind {} where only data is expected", parsed.header.kind);
        }
        if (!parsed.ok()) {
          lose(parsed.reason, false);
          return false;
        }
        message_.header = parsed.header;
        message_.stage = Stage::place;
        break;
      }
      case Stage::place:
        if (!place_message()) {
          return false;
        }
        message_.stage = Stage::payload;
        message_.filled = 0;
        message_.crc = 0;
        break;
      case Stage::payload: {
        while (message_.filled < message_.header.length && staged_from_ < staged_to_) {
          std::size_t room = 0;
          std::byte* target = payload_target(room);
          payload_came(take(target, room));
        }
        if (message_.filled < message_.header.length) {
          return true;
        }
        message_.stage = Stage::trailer;
        message_.filled = 0;
        break;
      }
      case Stage::trailer:
        if (message_.header.payload_checksum) {
          message_.filled += take(message_.trailer.data() + message_.filled, kFrameTrailerBytes - message_.filled);
          if (message_.filled < kFrameTrailerBytes) {
            return true;
          }
        }
        if (!end_message()) {
          return false;
        }
        break;
    }
  }
}

/// Finds a place for the message whose header has come. False when there is none for now.
bool SocketLink::place_message() {
  const Key key = key_of(message_.header.epoch, message_.header.sequence);
  message_.into = nullptr;
  message_.early = nullptr;
  stalled_ = false;
  if (unwanted_.erase(key) > 0 || ended_.contains(message_.header.epoch)) {
    return true;
  }
  if (const auto found = receives_.find(key); found != receives_.end()) {
    Transfer& transfer = *found->second;
    receives_.erase(found);
    if (transfer.bytes == message_.header.length) {
      message_.into = &transfer;
    } else {
      finish(transfer, Outcome::Kind::mismatch,
             fmt::format("sent a message of {} bytes where {} were expected", message_.header.length, transfer.bytes));
    }
    return true;
  }
  if (finished_some_) {
    return false;  // it is not copied if it is posted by the next call
  }
  if (early_.contains(key)) {
    lose(fmt::format("sent two messages with one tag ({}:{})", message_.header.epoch, message_.header.sequence), false);
    return false;
  }
  if (message_.header.length > most_early_ - early_bytes_) {
    stalled_ = true;
    return false;
  }
  early_bytes_ += message_.header.length;
  message_.early = &early_[key];
  message_.early->data = early_memory_.take(message_.header.length);
  message_.early->bytes = message_.header.length;
  return true;
}

/// The message and its checksum have come. False when they do not fit, and the link is lost.
bool SocketLink::end_message() {
  if (message_.header.payload_checksum && read_little_endian<std::uint32_t>(message_.trailer.data()) != message_.crc) {
    lose("sent a message with a wrong checksum", false);
    return false;
  }
  if (message_.into != nullptr) {
    finish(*message_.into, Outcome::Kind::done, {});
    finished_some_ = true;
  } else if (message_.early != nullptr) {
    message_.early->whole = true;
  }
  message_ = {};
  return true;
}

void SocketLink::lose(const std::string& reason, bool drop_early) {
  if (lost_) {
    return;
  }
  lost_ = reason;
  for (const Outgoing& out : sends_) {
    if (out.transfer != nullptr) {
      finish(*out.transfer, Outcome::Kind::peer_lost, reason);
    }
  }
  for (const auto& [key, transfer] : receives_) {
    finish(*transfer, Outcome::Kind::peer_lost, reason);
  }
  if (message_.into != nullptr) {
    finish(*message_.into, Outcome::Kind::peer_lost, reason);
  }
  sends_.clear();
  receives_.clear();
  unwanted_.clear();
  message_ = {};
  std::erase_if(early_, [&](const auto& entry) { return drop_early || !entry.second.whole; });
}

void SocketLink::end_epoch(std::uint32_t epoch, const std::string& reason) {
  if (!ended_.emplace(epoch, reason).second || lost_) {
    return;
  }
  std::vector<Transfer*> over;
  for (const Outgoing& out : sends_) {
    if (out.transfer != nullptr && out.transfer->tag.epoch == epoch) {
      over.push_back(out.transfer);
    }
  }
  for (const auto& [key, transfer] : receives_) {
    if (epoch_of(key) == epoch) {
      over.push_back(transfer);
    }
  }
  if (message_.into != nullptr && message_.into->tag.epoch == epoch) {
    over.push_back(message_.into);
  }
  for (Transfer* transfer : over) {
    cancel(*transfer);
    finish(*transfer, Outcome::Kind::interrupted, reason);
  }
  std::erase_if(unwanted_, [&](Key key) { return epoch_of(key) == epoch; });
  std::erase_if(early_, [&](const auto& entry) {
    if (epoch_of(entry.first) != epoch) {
      return false;
    }
    if (message_.early == &entry.second) {
      message_.early = nullptr;  // what is still to come of it is thrown away
    }
    early_bytes_ -= entry.second.bytes;
    return true;
  });
  stalled_ = false;  // there may be room now
}

}  // namespace distbelief
