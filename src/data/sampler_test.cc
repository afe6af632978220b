#include "data/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

namespace distbelief {
namespace {

std::vector<std::uint64_t> epoch_of(const Sampler& sampler, std::uint64_t epoch) {
  std::vector<std::uint64_t> ids(sampler.samples());
  sampler.fill(epoch, 0, ids);
  return ids;
}

TEST(Sampler, EveryEpochVisitsEverySampleOnce) {
  for (const std::uint64_t samples : {1, 2, 3, 4, 5, 7, 8, 9, 31, 32, 33, 1000, 4097, 60000}) {
    const Sampler sampler(samples, 7, true);
    for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
      std::vector<std::uint64_t> ids = epoch_of(sampler, epoch);
      std::sort(ids.begin(), ids.end());
      std::vector<std::uint64_t> all(samples);
      std::iota(all.begin(), all.end(), 0);
      EXPECT_EQ(ids, all) << samples;
    }
  }
}

TEST(Sampler, EpochsAndSeedsGiveDifferentOrders) {
  const auto first = epoch_of(Sampler(1000, 1, true), 0);
  EXPECT_EQ(first, epoch_of(Sampler(1000, 1, true), 0));
  EXPECT_NE(first, epoch_of(Sampler(1000, 1, true), 1));
  EXPECT_NE(first, epoch_of(Sampler(1000, 2, true), 0));
  EXPECT_NE(first, epoch_of(Sampler(1000, 1, true, RandomUse::split), 0));
}

TEST(Sampler, ResumesMidEpochAfterSeek) {
  const Sampler sampler(777, 3, true);
  const auto whole = epoch_of(sampler, 5);
  std::vector<std::uint64_t> part(100);
  sampler.fill(5, 600, part);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 600));
  EXPECT_EQ(sampler.at(5, 776), whole[776]);
}

TEST(Sampler, WithoutShufflingKeepsTheOrder) {
  const Sampler sampler(10, 3, false);
  EXPECT_EQ(sampler.at(4, 9), 9U);
  EXPECT_EQ(epoch_of(sampler, 1)[3], 3U);
}

TEST(Sampler, HandlesSizesBeyondMemory) {
  const Sampler sampler(std::uint64_t{1} << 62, 3, true);
  EXPECT_LT(sampler.at(0, (std::uint64_t{1} << 62) - 1), std::uint64_t{1} << 62);
}

// All 120 orders of 5 samples are about equally frequent: chi-square with 119 degrees of freedom exceeds 178 in one of
// 3000 fair draws; the seeds are fixed, so this one never changes.
TEST(Sampler, AllOrdersOfAFewSamplesAreEquallyLikely) {
  std::map<std::vector<std::uint64_t>, int> seen;
  constexpr int kDraws = 24000;
  for (int draw = 0; draw < kDraws; ++draw) {
    ++seen[epoch_of(Sampler(5, static_cast<std::uint64_t>(draw / 100), true), static_cast<std::uint64_t>(draw % 100))];
  }
  ASSERT_EQ(seen.size(), 120U);
  double chi_square = 0;
  for (const auto& [order, count] : seen) {
    const double expected = kDraws / 120.0;
    chi_square += (count - expected) * (count - expected) / expected;
  }
  EXPECT_LT(chi_square, 178);
}

// Where a sample lands, and which follows which, is uniform for a size that is no power of two.
TEST(Sampler, PlacesAndNeighboursAreUniform) {
  constexpr std::uint64_t kSamples = 12;
  constexpr std::uint64_t kEpochs = 6000;
  std::vector<int> place(kSamples * kSamples);
  std::vector<int> follower(kSamples * kSamples);
  const Sampler sampler(kSamples, 11, true);
  for (std::uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
    const auto ids = epoch_of(sampler, epoch);
    for (std::size_t i = 0; i < kSamples; ++i) {
      ++place[i * kSamples + ids[i]];
      if (i > 0) {
        ++follower[ids[i - 1] * kSamples + ids[i]];
      }
    }
  }
  double place_chi = 0;
  double follower_chi = 0;
  for (std::size_t i = 0; i < place.size(); ++i) {
    const double expected = static_cast<double>(kEpochs) / kSamples;
    place_chi += (place[i] - expected) * (place[i] - expected) / expected;
    if (i / kSamples != i % kSamples) {
      follower_chi += (follower[i] - expected) * (follower[i] - expected) / expected;
    }
  }
  EXPECT_LT(place_chi, 180);     // 121 degrees of freedom
  EXPECT_LT(follower_chi, 195);  // about 131
}

TEST(Sampler, WhatIsDoneComesFirstAndTheRestKeepsItsOrder) {
  const Sampler plain(20, 3, true);
  Sampler sampler = plain;
  sampler.put_first(4, {{2, 3}, {9, 1}, {15, 5}});
  EXPECT_EQ(sampler.done(4), 9U);
  EXPECT_EQ(sampler.done(5), 0U);
  const auto before = epoch_of(plain, 4);
  std::vector<std::uint64_t> expected;
  for (const std::size_t position : {2, 3, 4, 9, 15, 16, 17, 18, 19, 0, 1, 5, 6, 7, 8, 10, 11, 12, 13, 14}) {
    expected.push_back(before[position]);
  }
  EXPECT_EQ(epoch_of(sampler, 4), expected);
  EXPECT_EQ(epoch_of(sampler, 5), epoch_of(plain, 5));
  for (std::uint64_t first = 0; first < 20; ++first) {
    for (std::uint64_t count = 0; count <= 20 - first; ++count) {
      std::vector<std::uint64_t> part(count);
      sampler.fill(4, first, part);
      EXPECT_TRUE(std::equal(part.begin(), part.end(), expected.begin() + static_cast<std::ptrdiff_t>(first)));
    }
  }
}

TEST(Sampler, AllOfAnEpochOrNothingOfItMayBeDone) {
  Sampler sampler(5, 3, true);
  sampler.put_first(0, {{0, 5}});
  sampler.put_first(1, {});
  EXPECT_EQ(sampler.done(0), 5U);
  EXPECT_EQ(sampler.done(1), 0U);
  for (const std::uint64_t epoch : {0, 1}) {
    EXPECT_EQ(epoch_of(sampler, epoch), epoch_of(Sampler(5, 3, true), epoch));
  }
}

}  // namespace
}  // namespace distbelief
