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

std::uint32_t crc32c_by_tables(const unsigned char* at, std::size_t left, std::uint32_t crc) {
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
  return crc;
}

#if defined(__x86_64__)

// The processor's instruction takes eight bytes a cycle, but its result comes three cycles later. So three neighbouring
// stretches go side by side, and their sums are joined: the sum of a stretch with n bytes behind it is its sum times
// x^8n modulo the polynomial, which is linear in the sum's four bytes and so four look-ups.
constexpr std::size_t kStretch = 2048;

/// a times b modulo the polynomial; bit 31 is x^0.
constexpr std::uint32_t multiply(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product = 0;
  for (std::uint32_t bit = 0x80000000U; bit != 0; bit >>= 1) {
    product ^= (a & bit) != 0 ? b : 0U;
    b = (b >> 1) ^ ((b & 1U) != 0 ? 0x82F63B78U : 0U);
  }
  return product;
}

constexpr auto kBehindOneStretch = [] {
  std::uint32_t shift = 0x40000000U;  // x
  for (std::size_t power = 1; power < 8 * kStretch; power *= 2) {
    shift = multiply(shift, shift);
  }
  std::array<std::array<std::uint32_t, 256>, 4> tables{};
  for (std::uint32_t byte = 0; byte < 4; ++byte) {
    for (std::uint32_t value = 0; value < 256; ++value) {
      tables[byte][value] = multiply(shift, value << (8 * byte));
    }
  }
  return tables;
}();
static_assert((kStretch & (kStretch - 1)) == 0, "the power above is found by squaring");

std::uint32_t behind_one_stretch(std::uint64_t crc) {
  return kBehindOneStretch[0][crc & 0xFFU] ^ kBehindOneStretch[1][(crc >> 8) & 0xFFU] ^
         kBehindOneStretch[2][(crc >> 16) & 0xFFU] ^ kBehindOneStretch[3][(crc >> 24) & 0xFFU];
}

__attribute__((target("sse4.2"))) std::uint32_t crc32c_by_instruction(const unsigned char* at, std::size_t left,
                                                                      std::uint32_t crc) {
  std::uint64_t first = crc;
  while (left >= 3 * kStretch) {
    std::uint64_t second = 0;
    std::uint64_t third = 0;
    for (std::size_t i = 0; i < kStretch; i += 8) {
      first = __builtin_ia32_crc32di(first, read_little_endian<std::uint64_t>(at + i));
      second = __builtin_ia32_crc32di(second, read_little_endian<std::uint64_t>(at + kStretch + i));
      third = __builtin_ia32_crc32di(third, read_little_endian<std::uint64_t>(at + 2 * kStretch + i));
    }
    first = behind_one_stretch(behind_one_stretch(first) ^ second) ^ third;
    at += 3 * kStretch;
    left -= 3 * kStretch;
  }
  for (; left >= 8; at += 8, left -= 8) {
    first = __builtin_ia32_crc32di(first, read_little_endian<std::uint64_t>(at));
  }
  return crc32c_by_tables(at, left, static_cast<std::uint32_t>(first));
}

#endif

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t seed) {
  const auto* at = reinterpret_cast<const unsigned char*>(bytes.data());
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (has_instruction) {
    return ~crc32c_by_instruction(at, bytes.size(), ~seed);
  }
#endif
  return ~crc32c_by_tables(at, bytes.size(), ~seed);
}

}  // namespace distbelief
