// Numbers are made in groups of kGroup, which take kLanes calls of the generator for four words each, in loops without
// branches or calls that become vector instructions. The logarithm, sine and cosine of Box-Muller are polynomials (with
// the coefficients of Moshier's Cephes library), good to about 1e-7.
#include "params/fill_random.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/multiversion.h"
#include "base/parallel.h"

namespace distbelief {

namespace {

constexpr std::int64_t kLanes = 32;
constexpr std::int64_t kGroup = 4 * kLanes;
constexpr std::int64_t kGroupsAtOnce = 64;

struct Words {
  std::uint32_t words[4][kLanes];
};

inline void draw(const CounterRandom& random, std::uint64_t stream, std::uint64_t group, Words& out) {
  for (std::uint64_t lane = 0; lane < kLanes; ++lane) {
    const auto four = random.words(stream, group * kLanes + lane);
    out.words[0][lane] = four[0];
    out.words[1][lane] = four[1];
    out.words[2][lane] = four[2];
    out.words[3][lane] = four[3];
  }
}

/// In [0, 1). The word, shifted, fits a signed integer, whose conversion is one instruction.
inline float unit(std::uint32_t word) { return static_cast<float>(static_cast<std::int32_t>(word >> 8)) * 0x1p-24F; }

/// Natural logarithm of a normal number above 0.
inline float log_of(float value) {
  // The exponent is chosen so that the mantissa is in [√½, √2).
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value) - 0x3f3504f3U;
  const auto exponent = static_cast<float>(static_cast<std::int32_t>(bits) >> 23);
  const float x = std::bit_cast<float>((bits & 0x007fffffU) + 0x3f3504f3U) - 1.0F;
  float p = 7.0376836292e-2F;
  p = p * x - 1.1514610310e-1F;
  p = p * x + 1.1676998740e-1F;
  p = p * x - 1.2420140846e-1F;
  p = p * x + 1.4249322787e-1F;
  p = p * x - 1.6668057665e-1F;
  p = p * x + 2.0000714765e-1F;
  p = p * x - 2.4999993993e-1F;
  p = p * x + 3.3333331174e-1F;
  return x + (p * x - 0.5F) * (x * x) + exponent * 0.693147181F;
}

/// A direction from one word: its lowest two bits choose the quarter, the highest the angle x within, up to ±π/4.
inline void direction(std::uint32_t word, float& first, float& second) {
  const float x = (unit(word) - 0.5F) * 1.57079633F;
  const float z = x * x;
  float sine = -1.9515295891e-4F;
  sine = sine * z + 8.3321608736e-3F;
  sine = sine * z - 1.6666654611e-1F;
  sine = sine * (z * x) + x;
  float cosine = 2.443315711809948e-5F;
  cosine = cosine * z - 1.388731625493765e-3F;
  cosine = cosine * z + 4.166664568298827e-2F;
  cosine = cosine * (z * z) + (1.0F - 0.5F * z);
  const std::uint32_t sine_bits = std::bit_cast<std::uint32_t>(sine);
  const std::uint32_t cosine_bits = std::bit_cast<std::uint32_t>(cosine);
  const std::uint32_t swap = 0U - (word & 1U);  // all ones or none
  const std::uint32_t sign = (word & 2U) << 30;
  first = std::bit_cast<float>(((sine_bits & swap) | (cosine_bits & ~swap)) ^ sign);
  second = std::bit_cast<float>(((cosine_bits & swap) | (sine_bits & ~swap)) ^ sign);
}

DISTBELIEF_MULTIVERSION
void uniform_group(const CounterRandom& random, std::uint64_t stream, std::uint64_t group, float bound,
                   float* __restrict out) {
  Words drawn;
  draw(random, stream, group, drawn);
  for (std::int64_t word = 0; word < 4; ++word) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      out[word * kLanes + lane] = (2.0F * unit(drawn.words[word][lane]) - 1.0F) * bound;
    }
  }
}

DISTBELIEF_MULTIVERSION
void normal_group(const CounterRandom& random, std::uint64_t stream, std::uint64_t group, float deviation,
                  float* __restrict out) {
  Words drawn;
  draw(random, stream, group, drawn);
  for (std::int64_t word = 0; word < 4; word += 2) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      const float radius = deviation * std::sqrt(-2.0F * log_of(1.0F - unit(drawn.words[word][lane])));
      float first;
      float second;
      direction(drawn.words[word + 1][lane], first, second);
      out[word * kLanes + lane] = radius * first;
      out[(word + 1) * kLanes + lane] = radius * second;
    }
  }
}

template <typename MakeGroup>
void fill(std::span<float> out, std::int64_t first, const MakeGroup& make_group) {
  const std::int64_t last = first + static_cast<std::int64_t>(out.size());
  const std::int64_t first_group = first / kGroup;
  parallel_for((last + kGroup - 1) / kGroup - first_group, kGroupsAtOnce, [&](std::int64_t begin, std::int64_t end) {
    float numbers[kGroup];
    for (std::int64_t group = first_group + begin; group < first_group + end; ++group) {
      make_group(static_cast<std::uint64_t>(group), numbers);
      const std::int64_t from = std::max(first, group * kGroup);
      const std::int64_t to = std::min(last, (group + 1) * kGroup);
      std::copy_n(numbers + (from - group * kGroup), to - from, out.data() + (from - first));
    }
  });
}

}  // namespace

void fill_uniform(const CounterRandom& random, std::uint64_t stream, float bound, std::span<float> out,
                  std::int64_t first) {
  fill(out, first, [&](std::uint64_t group, float* numbers) { uniform_group(random, stream, group, bound, numbers); });
}

void fill_normal(const CounterRandom& random, std::uint64_t stream, float deviation, std::span<float> out,
                 std::int64_t first) {
  fill(out, first, [&](std::uint64_t group, float* numbers) { normal_group(random, stream, group, deviation, numbers); });
}

}  // namespace distbelief
