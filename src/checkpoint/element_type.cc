#include <array>
#include <bit>
#include <cstring>

#include "base/bytes.h"
#include "base/check.h"
#include "checkpoint/safetensors.h"

namespace distbelief {
namespace {

struct TypeFacts {
  std::string_view name;
  std::size_t size;
};

// In the order of ElementType.
constexpr std::array<TypeFacts, 13> kTypes = {{{"F64", 8},
                                               {"F32", 4},
                                               {"F16", 2},
                                               {"BF16", 2},
                                               {"I64", 8},
                                               {"I32", 4},
                                               {"I16", 2},
                                               {"I8", 1},
                                               {"U64", 8},
                                               {"U32", 4},
                                               {"U16", 2},
                                               {"U8", 1},
                                               {"BOOL", 1}}};

float from_half(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000U) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1FU;
  const std::uint32_t fraction = bits & 0x3FFU;
  if (exponent == 0) {  // zero or subnormal: fraction × 2^-24 is exact
    const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
    return sign != 0 ? -magnitude : magnitude;
  }
  const std::uint32_t wide = exponent == 0x1FU ? 0xFFU : exponent + (127 - 15);
  return std::bit_cast<float>(sign | (wide << 23) | (fraction << 13));
}

float from_bfloat(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

template <typename Stored, typename Convert>
void convert_all(std::span<const std::byte> bytes, std::span<float> out, Convert convert) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = convert(read_little_endian<Stored>(bytes.data() + i * sizeof(Stored)));
  }
}

template <typename Stored>
void cast_all(std::span<const std::byte> bytes, std::span<float> out) {
  convert_all<Stored>(bytes, out, [](Stored value) { return static_cast<float>(value); });
}

}  // namespace

std::size_t size_of(ElementType type) { return kTypes.at(static_cast<std::size_t>(type)).size; }

std::string_view name_of(ElementType type) { return kTypes.at(static_cast<std::size_t>(type)).name; }

void SafetensorsView::read(const TensorEntry& tensor, std::int64_t first, std::span<float> out) const {
  const std::size_t size = size_of(tensor.type);
  check((static_cast<std::size_t>(first) + out.size()) * size <= bytes(tensor).size(), "what is read is in the tensor");
  const std::span<const std::byte> from = bytes(tensor).subspan(static_cast<std::size_t>(first) * size, out.size() * size);
  switch (tensor.type) {
    case ElementType::f32:
      if (!out.empty()) {
        std::memcpy(out.data(), from.data(), from.size());
      }
      return;
    case ElementType::f64:
      return cast_all<double>(from, out);
    case ElementType::f16:
      return convert_all<std::uint16_t>(from, out, from_half);
    case ElementType::bf16:
      return convert_all<std::uint16_t>(from, out, from_bfloat);
    case ElementType::i64:
      return cast_all<std::int64_t>(from, out);
    case ElementType::i32:
      return cast_all<std::int32_t>(from, out);
    case ElementType::i16:
      return cast_all<std::int16_t>(from, out);
    case ElementType::i8:
      return cast_all<std::int8_t>(from, out);
    case ElementType::u64:
      return cast_all<std::uint64_t>(from, out);
    case ElementType::u32:
      return cast_all<std::uint32_t>(from, out);
    case ElementType::u16:
      return cast_all<std::uint16_t>(from, out);
    case ElementType::u8:
      return cast_all<std::uint8_t>(from, out);
    case ElementType::boolean:
      return convert_all<std::uint8_t>(from, out, [](std::uint8_t value) { return value != 0 ? 1.0F : 0.0F; });
  }
}

}  // namespace distbelief
