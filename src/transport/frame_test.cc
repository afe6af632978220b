#include "transport/frame.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/bytes.h"

namespace distbelief {
namespace {

using Fault = ParsedFrameHeader::Fault;

constexpr FrameHeader kHeader = {
    .kind = 7, .length = 1000, .epoch = 3, .sequence = 0xFFFFFFFF, .payload_checksum = true};

/// Changes one byte and mends the header's checksum, as a stranger who knows the format could.
FrameHeaderBytes forged(std::size_t at, std::byte value) {
  FrameHeaderBytes bytes = encode_frame_header(kHeader);
  bytes[at] = value;
  const std::uint32_t crc = crc32c(std::span(bytes).first(24));
  std::memcpy(bytes.data() + 24, &crc, sizeof(crc));
  return bytes;
}

TEST(Frame, HeaderSurvivesTheWire) {
  const ParsedFrameHeader parsed = parse_frame_header(encode_frame_header(kHeader), 1000);
  ASSERT_TRUE(parsed.ok()) << parsed.reason;
  EXPECT_EQ(parsed.header, kHeader);
}

TEST(Frame, AnyFlippedBitIsNoticed) {
  for (std::size_t bit = 0; bit < 8 * kFrameHeaderBytes; ++bit) {
    FrameHeaderBytes bytes = encode_frame_header(kHeader);
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_FALSE(parse_frame_header(bytes, 1000).ok()) << "bit " << bit;
  }
}

TEST(Frame, NamesWhatIsWrong) {
  FrameHeaderBytes request;
  request.fill(std::byte{'G'});
  EXPECT_EQ(parse_frame_header(request, 1000).fault, Fault::bad_magic);
  EXPECT_EQ(parse_frame_header(forged(4, std::byte{9}), 1000).fault, Fault::other_version);
  EXPECT_EQ(parse_frame_header(forged(4, std::byte{9}), 1000).reason,
            "speaks version 9 of the protocol, and this program version 1");
  EXPECT_EQ(parse_frame_header(forged(20, std::byte{3}), 1000).fault, Fault::unknown_flags);
  FrameHeaderBytes damaged = encode_frame_header(kHeader);
  damaged[12] ^= std::byte{1};
  EXPECT_EQ(parse_frame_header(damaged, 1000).fault, Fault::bad_checksum);
}

TEST(Frame, LengthIsCheckedAgainstWhatTheReaderTakes) {
  EXPECT_TRUE(parse_frame_header(encode_frame_header(kHeader), 1000).ok());
  const ParsedFrameHeader parsed = parse_frame_header(encode_frame_header(kHeader), 999);
  EXPECT_EQ(parsed.fault, Fault::too_long);
  EXPECT_EQ(parsed.reason, "sent a frame of 1000 bytes, of which at most 999 are allowed");
}

TEST(Frame, WholeFrameIsHeaderPayloadAndChecksum) {
  const std::string payload = "gradient";
  const auto bytes = std::as_bytes(std::span(payload));
  EXPECT_EQ(encode_frame({.kind = 1}, bytes).size(), kFrameHeaderBytes + payload.size());
  const std::string frame = encode_frame({.kind = 1, .payload_checksum = true}, bytes);
  ASSERT_EQ(frame.size(), kFrameHeaderBytes + payload.size() + kFrameTrailerBytes);
  EXPECT_EQ(frame.substr(kFrameHeaderBytes, payload.size()), payload);
  EXPECT_EQ(read_little_endian<std::uint32_t>(frame.data() + frame.size() - 4), crc32c(bytes));
}

}  // namespace
}  // namespace distbelief
