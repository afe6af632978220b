#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace distbelief {

/// What travels over sockets: frames, each a header, `length` bytes of payload and, where the header says so, the
/// CRC32C of the payload (behind it, so that it can be computed while the bytes go out). All numbers are little-endian.
///
///   at 0 magic u32 | 4 version u16 | 6 kind u16 | 8 length u32 | 12 epoch u32 | 16 sequence u32 | 20 flags u32 |
///   24 CRC32C of bytes 0 … 23
struct FrameHeader {
  std::uint16_t kind = 0;      ///< what the payload is; the two ends agree on the numbers
  std::uint32_t length = 0;    ///< of the payload, in bytes
  std::uint32_t epoch = 0;     ///< Tag::epoch, or a view
  std::uint32_t sequence = 0;  ///< Tag::sequence
  bool payload_checksum = false;
  friend bool operator==(const FrameHeader&, const FrameHeader&) = default;
};

inline constexpr std::uint32_t kFrameMagic = 0x66426444;  // "DdBf"
/// Both ends of a connection must have the same. Raise it with every change of a frame or of what frames hold.
inline constexpr std::uint16_t kProtocolVersion = 1;
inline constexpr std::size_t kFrameHeaderBytes = 28;
inline constexpr std::size_t kFrameTrailerBytes = 4;  ///< of a frame with payload_checksum

using FrameHeaderBytes = std::array<std::byte, kFrameHeaderBytes>;

FrameHeaderBytes encode_frame_header(const FrameHeader& header);

/// A header, or what is wrong with the bytes that should have been one.
struct [[nodiscard]] ParsedFrameHeader {
  enum class Fault : std::uint8_t { none, bad_magic, other_version, bad_checksum, unknown_flags, too_long };
  Fault fault = Fault::none;
  FrameHeader header;  ///< meaningful without a fault
  std::string reason =
      {};  ///< the fault for people: "sent a frame of 5000000 bytes, of which at most 65536 are allowed"

  bool ok() const { return fault == Fault::none; }
};

/// `longest` is how many bytes of payload the reader is ready to take.
ParsedFrameHeader parse_frame_header(std::span<const std::byte, kFrameHeaderBytes> bytes, std::size_t longest);

/// A whole frame in one string, for short ones.
std::string encode_frame(FrameHeader header, std::span<const std::byte> payload);

}  // namespace distbelief
