#include "transport/message_reader.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"

namespace distbelief {
namespace {

/// Moves bytes from the front of `from` behind the first `filled` of `into`. True when `into` is full.
bool fill(std::span<std::byte> into, std::size_t& filled, std::span<const std::byte>& from) {
  const std::size_t count = std::min(into.size() - filled, from.size());
  std::copy_n(from.begin(), count, into.begin() + static_cast<std::ptrdiff_t>(filled));
  filled += count;
  from = from.subspan(count);
  return filled == into.size();
}

}  // namespace

MessageReader::Step MessageReader::next(std::span<const std::byte>& bytes) {
  if (head_filled_ < head_.size()) {
    if (!fill(head_, head_filled_, bytes)) {
      return {};
    }
    ParsedFrameHeader parsed = parse_frame_header(head_, longest_);
    if (!parsed.ok()) {
      return {Step::Kind::fault, {}, std::move(parsed.reason)};
    }
    header_ = parsed.header;
  }
  const std::size_t count = std::min(header_.length - body_.size(), bytes.size());
  body_.append(reinterpret_cast<const char*>(bytes.data()), count);
  bytes = bytes.subspan(count);
  if (body_.size() < header_.length) {
    return {};
  }
  if (header_.payload_checksum) {
    if (!fill(trailer_, trailer_filled_, bytes)) {
      return {};
    }
    if (read_little_endian<std::uint32_t>(trailer_.data()) != crc32c(std::as_bytes(std::span(body_)))) {
      return {Step::Kind::fault, {}, "sent a message with a wrong checksum"};
    }
  }
  head_filled_ = 0;
  trailer_filled_ = 0;
  return {Step::Kind::message, {header_.kind, std::exchange(body_, {})}};
}

std::string encode_message(const Message& message) {
  return encode_frame({.kind = message.kind, .payload_checksum = true}, std::as_bytes(std::span(message.body)));
}

}  // namespace distbelief
