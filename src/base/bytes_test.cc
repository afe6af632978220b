#include "base/bytes.h"

#include <gtest/gtest.h>

#include <string_view>

namespace distbelief {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST(Crc32c, MatchesTheCheckValueOfTheStandard) { EXPECT_EQ(crc32c(bytes_of("123456789")), 0xE3069283U); }

TEST(Crc32c, GoesOnFromASeed) {
  EXPECT_EQ(crc32c(bytes_of("456789"), crc32c(bytes_of("123"))), crc32c(bytes_of("123456789")));
}

TEST(Bytes, BigEndianReadsTheHighByteFirst) {
  const unsigned char bytes[] = {0, 0, 8, 3};
  EXPECT_EQ(read_big_endian<std::int32_t>(bytes), 2051);
}

}  // namespace
}  // namespace distbelief
