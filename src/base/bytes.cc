#include "base/bytes.h"

#include <array>

namespace distbelief {
namespace {

// Eight tables, so that eight bytes go at a time ("slicing by 8").
constexpr auto kTables = [] {
  std::array<std::array<std::uint32_t, 256>, 8> tables{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1U) != 0 ? 0x82F63B78U : 0U);
    }
    tables[0][i] = crc;
  }
  for (std::size_t slice = 1; slice < 8; ++slice) {
    for (std::uint32_t i = 0; i < 256; ++i) {
      const std::uint32_t before = tables[slice - 1][i];
      tables[slice][i] = (before >> 8) ^ tables[0][before & 0xFFU];
    }
  }
  return tables;
}();

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t seed) {
  std::uint32_t crc = ~seed;
  const auto* at = reinterpret_cast<const unsigned char*>(bytes.data());
  std::size_t left = bytes.size();
  while (left >= 8) {
    const std::uint32_t low = read_little_endian<std::uint32_t>(at) ^ crc;
    const std::uint32_t high = read_little_endian<std::uint32_t>(at + 4);
    crc = kTables[7][low & 0xFFU] ^ kTables[6][(low >> 8) & 0xFFU] ^ kTables[5][(low >> 16) & 0xFFU] ^
          kTables[4][low >> 24] ^ kTables[3][high & 0xFFU] ^ kTables[2][(high >> 8) & 0xFFU] ^
          kTables[1][(high >> 16) & 0xFFU] ^ kTables[0][high >> 24];
    at += 8;
    left -= 8;
  }
  while (left-- > 0) {
    crc = (crc >> 8) ^ kTables[0][(crc ^ *at++) & 0xFFU];
  }
  return ~crc;
}

}  // namespace distbelief
