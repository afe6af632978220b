#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/random.h"

namespace distbelief {

/// Positions of an epoch that follow one another.
struct PositionRun {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
  friend bool operator==(const PositionRun&, const PositionRun&) = default;
};

/// In which order an epoch visits the samples: a permutation of [0, samples) that is a pure function of (seed, epoch).
/// There is no state, so any worker can start anywhere. Thread-safe, but for put_first().
///
/// The idea: an alternating Feistel network permutes the smallest [0, 2^k) that contains the samples; results outside
/// are sent through again until they fall inside ("cycle walking", Black and Rogaway 2002), twice on average at most.
class Sampler {
 public:
  Sampler(std::uint64_t samples, std::uint64_t seed, bool shuffle, RandomUse use = RandomUse::shuffle);

  std::uint64_t samples() const { return samples_; }
  /// The sample at this position of the epoch; position < samples().
  std::uint64_t at(std::uint64_t epoch, std::uint64_t position) const;
  /// at() for the positions from `first` on, faster.
  void fill(std::uint64_t epoch, std::uint64_t first, std::span<std::uint64_t> ids) const;

  /// For a run that goes on where samples were not taken in this order: from now on the epoch begins with these
  /// positions, which are done, and all others follow in their order. `done` ascends, without overlaps.
  void put_first(std::uint64_t epoch, const std::vector<PositionRun>& done);
  /// How many samples of the epoch are done before anybody begins with it.
  std::uint64_t done(std::uint64_t epoch) const;

 private:
  /// An epoch that was given another order: its positions, as runs of those that it had.
  struct Changed {
    struct Run {
      std::uint64_t position = 0;  ///< now
      PositionRun before;
    };
    std::vector<Run> runs = {};
    std::uint64_t done = 0;
  };
  static constexpr int kRounds = 10;
  using Keys = std::array<std::uint64_t, kRounds>;

  Keys keys(std::uint64_t epoch) const;
  std::uint64_t permute(const Keys& keys, std::uint64_t position) const;

  std::uint64_t samples_;
  CounterRandom random_;
  bool shuffle_;
  std::map<std::uint64_t, Changed> changed_;
  int right_bits_ = 0;
  std::uint64_t left_mask_ = 0;
  std::uint64_t right_mask_ = 0;
};

}  // namespace distbelief
