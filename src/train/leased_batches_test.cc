#include "train/leased_batches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <thread>
#include <utility>

#include "base/error.h"

namespace distbelief {
namespace {

constexpr std::int64_t kSamples = 103;
constexpr std::int64_t kBatch = 4;

/// A sample is its number; one may be broken. Not cheap, so that threads read it.
class Numbers final : public Dataset {
 public:
  explicit Numbers(std::uint64_t broken = ~std::uint64_t{0}) : broken_(broken) { spec_.input = Shape{1}; }
  const SampleSpec& spec() const override { return spec_; }
  std::uint64_t size() const override { return kSamples; }
  bool cheap() const override { return false; }
  void read(std::span<const std::uint64_t> ids, std::uint64_t epoch, Batch& batch) const override {
    start_batch(spec_, ids, epoch, batch);
    if (std::ranges::find(ids, broken_) != ids.end()) {
      throw FileError("sample is broken");
    }
  }

 private:
  const std::uint64_t broken_;
  SampleSpec spec_;
};

/// The batches of one worker, which is alone.
struct Stream {
  explicit Stream(std::optional<int> threads, const Dataset& read, int epochs = 2)
      : batches(read, sampler, source,
                {.batch = kBatch,
                 .batches_per_unit = 3,
                 .units_per_lease = 2,
                 .loader_threads = threads,
                 .inherited = [](const UnitReport&) { return true; },
                 .patience = std::chrono::milliseconds(0)}) {
    table.plan({.samples_per_epoch = kSamples, .epochs = epochs});
  }
  const Sampler sampler{kSamples, 7, true};
  SharedLeases table;
  ThreadLeases source{table, 1};
  LeasedBatches batches;
};

/// What a stream hands out, batch by batch, each unit reported as soon as it ends.
struct HandedOut {
  std::vector<std::vector<std::uint64_t>> ids;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> units;  ///< lease and number
  bool operator==(const HandedOut&) const = default;
};
HandedOut all_of(LeasedBatches& batches) {
  HandedOut found;
  while (const Batch* batch = batches.next()) {
    found.ids.push_back(batch->ids);
    found.units.emplace_back(batches.unit().id.lease, batches.unit().id.seq);
    if (batches.unit().ends) {
      batches.reported(batches.unit());
    }
  }
  EXPECT_EQ(batches.next(), nullptr);
  EXPECT_TRUE(batches.finished());
  return found;
}

TEST(LeasedBatches, ThreadsThatReadAheadDoNotChangeTheOrder) {
  const Numbers data;
  Stream plain(0, data);
  const HandedOut expected = all_of(plain.batches);
  std::multiset<std::uint64_t> seen;
  for (const auto& ids : expected.ids) {
    seen.insert(ids.begin(), ids.end());
  }
  EXPECT_EQ(seen.size(), 2U * kSamples);
  EXPECT_EQ(std::set(seen.begin(), seen.end()).size(), static_cast<std::size_t>(kSamples));
  for (const std::optional<int> threads : {std::optional<int>(1), std::optional<int>(3), std::optional<int>()}) {
    Stream stream(threads, data);
    EXPECT_EQ(all_of(stream.batches), expected);
  }
}

TEST(LeasedBatches, WhatWasReadAheadOfARefusedLeaseIsDropped) {
  const Numbers data;
  for (const int threads : {0, 2}) {
    Stream stream(threads, data, 1);
    LeasedBatches& batches = stream.batches;
    std::set<std::uint64_t> refused;
    for (int i = 0; i < 3; ++i) {
      const Batch* batch = batches.next();
      refused.insert(batch->ids.begin(), batch->ids.end());
    }
    const PushUnit first = batches.unit();
    ASSERT_TRUE(first.ends);
    ASSERT_NE(batches.next(), nullptr);  // of the unit after it
    EXPECT_TRUE(batches.refused(first));
    std::multiset<std::uint64_t> seen;
    for (const auto& ids : all_of(batches).ids) {
      seen.insert(ids.begin(), ids.end());
    }
    EXPECT_EQ(seen.size(), static_cast<std::size_t>(kSamples));  // each once, those that were refused too
    EXPECT_EQ(std::set(seen.begin(), seen.end()).size(), static_cast<std::size_t>(kSamples));
    EXPECT_TRUE(std::ranges::includes(seen, refused));
  }
}

TEST(LeasedBatches, ALeaseThatIsRefusedLateTakesNothingFromTheNext) {
  const Numbers data;
  for (const int threads : {0, 2}) {
    Stream stream(threads, data, 1), whole(0, data, 1);
    LeasedBatches& batches = stream.batches;
    const HandedOut expected = all_of(whole.batches);
    PushUnit last;
    for (std::size_t i = 0; i < 6; ++i) {  // all of the first lease
      ASSERT_NE(batches.next(), nullptr);
      last = batches.unit();
    }
    EXPECT_EQ(batches.next()->ids, expected.ids[6]);
    EXPECT_FALSE(batches.refused(last));
    EXPECT_EQ(batches.next()->ids, expected.ids[7]);
  }
}

TEST(LeasedBatches, ThreadsTakeTheBatchesOfAUnitEachOnce) {
  const Numbers data;
  for (const int loaders : {0, 2}) {
    for (const std::int64_t most : {1, 2}) {
      Stream stream(loaders, data);
      LeasedBatches& batches = stream.batches;
      std::multiset<std::uint64_t> seen;
      while (const Batch* first = batches.next()) {
        const std::int64_t samples = batches.unit().samples.count;
        std::mutex mutex;
        std::multiset<std::uint64_t> of_unit(first->ids.begin(), first->ids.end());
        const std::vector<std::uint64_t> before = first->ids;
        {
          std::vector<std::jthread> threads;
          for (int i = 0; i < 2; ++i) {
            threads.emplace_back([&] {
              Batch mine;
              while (batches.take(mine, most)) {
                const std::scoped_lock lock(mutex);
                EXPECT_LE(mine.size(), most * kBatch);
                of_unit.insert(mine.ids.begin(), mine.ids.end());
              }
            });
          }
        }
        EXPECT_EQ(first->ids, before);  // stays valid
        EXPECT_EQ(std::ssize(of_unit), samples);
        EXPECT_TRUE(batches.unit().ends);
        batches.reported(batches.unit());
        seen.merge(of_unit);
      }
      EXPECT_EQ(seen.size(), 2U * kSamples);
      EXPECT_EQ(std::set(seen.begin(), seen.end()).size(), static_cast<std::size_t>(kSamples));
    }
  }
}

TEST(LeasedBatches, ASampleThatCannotBeReadIsAnErrorAtItsBatch) {
  for (const int threads : {0, 2}) {
    const Numbers sound;
    Stream expected(0, sound);
    const HandedOut all = all_of(expected.batches);
    const Numbers broken(all.ids[4][1]);
    Stream stream(threads, broken);
    for (std::size_t i = 0; i < 4; ++i) {
      ASSERT_NE(stream.batches.next(), nullptr);
    }
    EXPECT_THROW((void)stream.batches.next(), FileError);
  }
}

}  // namespace
}  // namespace distbelief
