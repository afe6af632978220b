#include "transport/frame.h"

#include <fmt/format.h>

#include <cstring>
#include <limits>

#include "base/bytes.h"
#include "base/check.h"

namespace distbelief {
namespace {

constexpr std::uint32_t kHasPayloadChecksum = 1;
constexpr std::size_t kChecksumAt = 24;

template <typename T>
void put(FrameHeaderBytes& bytes, std::size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof(T));
}

}  // namespace

FrameHeaderBytes encode_frame_header(const FrameHeader& header) {
  FrameHeaderBytes bytes;
  put(bytes, 0, kFrameMagic);
  put(bytes, 4, kProtocolVersion);
  put(bytes, 6, header.kind);
  put(bytes, 8, header.length);
  put(bytes, 12, header.epoch);
  put(bytes, 16, header.sequence);
  put(bytes, 20, header.payload_checksum ? kHasPayloadChecksum : 0U);
  put(bytes, kChecksumAt, crc32c(std::span(bytes).first(kChecksumAt)));
  return bytes;
}

ParsedFrameHeader parse_frame_header(std::span<const std::byte, kFrameHeaderBytes> bytes, std::size_t longest) {
  using enum ParsedFrameHeader::Fault;
  const std::byte* at = bytes.data();
  if (const auto magic = read_little_endian<std::uint32_t>(at); magic != kFrameMagic) {
    return {bad_magic, {}, fmt::format("does not speak this protocol (its frame begins with {:#010x})", magic)};
  }
  // Before the checksum, which another version may keep at another place.
  if (const auto version = read_little_endian<std::uint16_t>(at + 4); version != kProtocolVersion) {
    return {other_version,
            {},
            fmt::format("speaks version {} of the protocol, and this program version {}", version, kProtocolVersion)};
  }
  if (read_little_endian<std::uint32_t>(at + kChecksumAt) != crc32c(bytes.first(kChecksumAt))) {
    return {bad_checksum, {}, "sent a frame whose header has a wrong checksum"};
  }
  const auto flags = read_little_endian<std::uint32_t>(at + 20);
  if ((flags & ~kHasPayloadChecksum) != 0) {
    return {unknown_flags, {}, fmt::format("sent a frame with unknown flags ({:#x})", flags)};
  }
  FrameHeader header;
  header.kind = read_little_endian<std::uint16_t>(at + 6);
  header.length = read_little_endian<std::uint32_t>(at + 8);
  header.epoch = read_little_endian<std::uint32_t>(at + 12);
  header.sequence = read_little_endian<std::uint32_t>(at + 16);
  header.payload_checksum = flags != 0;
  if (header.length > longest) {
    return {too_long,
            {},
            fmt::format("sent a frame of {} bytes, of which at most {} are allowed", header.length, longest)};
  }
  return {none, header};
}

std::string encode_frame(FrameHeader header, std::span<const std::byte> payload) {
  check(payload.size() <= std::numeric_limits<std::uint32_t>::max(), "a frame's length has 32 bits");
  header.length = static_cast<std::uint32_t>(payload.size());
  const FrameHeaderBytes head = encode_frame_header(header);
  std::string frame;
  frame.reserve(head.size() + payload.size() + kFrameTrailerBytes);
  frame.append(reinterpret_cast<const char*>(head.data()), head.size());
  frame.append(reinterpret_cast<const char*>(payload.data()), payload.size());
  if (header.payload_checksum) {
    append_little_endian(frame, crc32c(payload));
  }
  return frame;
}

}  // namespace distbelief
