#include "base/bytes.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace distbelief {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST(Crc32c, MatchesTheCheckValueOfTheStandard) { EXPECT_EQ(crc32c(bytes_of("123456789")), 0xE3069283U); }

TEST(Crc32c, GoesOnFromASeed) {
  EXPECT_EQ(crc32c(bytes_of("456789"), crc32c(bytes_of("123"))), crc32c(bytes_of("123456789")));
}

TEST(Crc32c, IsThatOfOneBitAtATimeForAnyLength) {
  std::string text;
  std::uint32_t bit_by_bit = ~0U;
  for (std::size_t length = 0; length <= 13'000; ++length) {  // twice over what is summed in three stretches
    if (length % 97 == 0 || length < 70) {
      ASSERT_EQ(crc32c(bytes_of(text)), ~bit_by_bit) << length;
      ASSERT_EQ(crc32c(bytes_of(text).subspan(length / 3), crc32c(bytes_of(text).first(length / 3))), ~bit_by_bit);
    }
    text.push_back(static_cast<char>(length * 31 + length / 256));
    bit_by_bit ^= static_cast<unsigned char>(text.back());
    for (int bit = 0; bit < 8; ++bit) {
      bit_by_bit = (bit_by_bit >> 1) ^ ((bit_by_bit & 1U) != 0 ? 0x82F63B78U : 0U);
    }
  }
}

TEST(Bytes, BigEndianReadsTheHighByteFirst) {
  const unsigned char bytes[] = {0, 0, 8, 3};
  EXPECT_EQ(read_big_endian<std::int32_t>(bytes), 2051);
}

}  // namespace
}  // namespace distbelief
