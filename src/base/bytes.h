#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>

namespace distbelief {

static_assert(std::endian::native == std::endian::little,
              "files and frames are little-endian, and so must be the host");

/// CRC32C (Castagnoli), as in TensorBoard event files and our manifests. `seed` is the value of what came before.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t seed = 0);

template <typename T>
requires std::is_trivially_copyable_v<T> std::span<const std::byte> as_bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

/// Appends the little-endian bytes of a number.
template <typename T>
requires std::is_arithmetic_v<T>
void append_little_endian(std::string& out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

/// Reads a number from unaligned bytes; the caller has checked that sizeof(T) bytes are there.
template <typename T>
requires std::is_arithmetic_v<T> T read_little_endian(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <typename T>
requires std::is_integral_v<T> T read_big_endian(const void* from) {
  const auto* bytes = static_cast<const unsigned char*>(from);
  std::make_unsigned_t<T> value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    value = static_cast<std::make_unsigned_t<T>>((value << 8) | bytes[i]);
  }
  return static_cast<T>(value);
}

}  // namespace distbelief
