#pragma once

#include <array>
#include <cstdint>

#include "base/multiversion.h"

namespace distbelief {

/// What a stream of random numbers is for. Streams of different purpose never overlap.
enum class RandomUse : std::uint32_t {
  initialize = 1,
  shuffle = 2,
  dropout = 3,
  augment = 4,
  generate = 5,
  split = 6,
  fault = 7
};

/// Random numbers as a pure function of (seed, use, where): Philox 4x32 with ten rounds (Salmon et al., SC 2011). There
/// is no state to save: whoever asks again for the same place gets the same number, on any thread and any machine.
class CounterRandom {
 public:
  CounterRandom(std::uint64_t seed, RandomUse use) : seed_(seed), use_(static_cast<std::uint32_t>(use)) {}

  /// Four independent 32-bit words for the place (stream, index). `stream` uses its low 48 bits.
  std::array<std::uint32_t, 4> words(std::uint64_t stream, std::uint64_t index) const {
    std::array<std::uint32_t, 4> counter = {static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
                                            static_cast<std::uint32_t>(stream),
                                            static_cast<std::uint32_t>(stream >> 32) ^ (use_ << 16)};
    std::uint32_t key0 = static_cast<std::uint32_t>(seed_);
    std::uint32_t key1 = static_cast<std::uint32_t>(seed_ >> 32);
    DISTBELIEF_UNROLL for (int round = 0; round < 10; ++round) {
      const std::uint64_t product0 = std::uint64_t{0xD2511F53U} * counter[0];
      const std::uint64_t product1 = std::uint64_t{0xCD9E8D57U} * counter[2];
      counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key0, static_cast<std::uint32_t>(product1),
                 static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key1, static_cast<std::uint32_t>(product0)};
      key0 += 0x9E3779B9U;
      key1 += 0xBB67AE85U;
    }
    return counter;
  }

  std::uint64_t word64(std::uint64_t stream, std::uint64_t index) const {
    const auto w = words(stream, index);
    return (std::uint64_t{w[0]} << 32) | w[1];
  }

  /// In [0, 1).
  float uniform(std::uint64_t stream, std::uint64_t index) const {
    return static_cast<float>(words(stream, index)[0] >> 8) * 0x1p-24F;
  }

  /// In [0, bound), without modulo bias worth speaking of; bound > 0.
  std::uint64_t below(std::uint64_t bound, std::uint64_t stream, std::uint64_t index) const {
    return static_cast<std::uint64_t>((static_cast<Wide>(word64(stream, index)) * bound) >> 64);
  }

  /// Standard normal (Box-Muller).
  float normal(std::uint64_t stream, std::uint64_t index) const;

 private:
  __extension__ using Wide = unsigned __int128;

  std::uint64_t seed_;
  std::uint32_t use_;
};

}  // namespace distbelief
