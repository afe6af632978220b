#include "data/read_ahead.h"

#include <gtest/gtest.h>

#include <atomic>

#include "base/error.h"

namespace distbelief {
namespace {

/// A sample is its number; one may be broken.
class CountedReads final : public Dataset {
 public:
  explicit CountedReads(std::uint64_t broken = ~std::uint64_t{0}) : broken_(broken) { spec_.input = Shape{1}; }
  const SampleSpec& spec() const override { return spec_; }
  std::uint64_t size() const override { return 100; }
  void read(std::span<const std::uint64_t> ids, std::uint64_t epoch, Batch& batch) const override {
    start_batch(spec_, ids, epoch, batch);
    for (const std::uint64_t id : ids) {
      if (id == broken_) {
        throw FileError("sample is broken");
      }
    }
    ++batches_read;
  }
  mutable std::atomic<int> batches_read = 0;

 private:
  const std::uint64_t broken_;
  SampleSpec spec_;
};

std::vector<std::uint64_t> taken(ReadAhead& ahead) {
  Batch batch;
  ahead.take(batch);
  return batch.ids;
}

TEST(ReadAhead, HandsOutInTheOrderOfThePlan) {
  const CountedReads data;
  const Sampler in_order(100, 1, false);
  ReadAhead ahead(data, in_order, 3, 5);
  std::uint64_t planned = 0;
  for (std::uint64_t i = 0; i < 50; ++i) {
    for (; planned < 50 && ahead.has_room(); ++planned) {
      ahead.plan({.epoch = 0, .position = 2 * planned, .size = 2});
    }
    EXPECT_EQ(taken(ahead), (std::vector<std::uint64_t>{2 * i, 2 * i + 1}));
  }
}

TEST(ReadAhead, ADroppedPlanIsNeitherReadNorHandedOut) {
  const CountedReads data(7);
  const Sampler in_order(100, 1, false);
  for (int round = 0; round < 20; ++round) {
    ReadAhead ahead(data, in_order, 2, 8);
    for (std::uint64_t i = 0; i < 8; ++i) {
      ahead.plan({.epoch = 0, .position = i, .size = 1});
    }
    EXPECT_EQ(taken(ahead), std::vector<std::uint64_t>{0});
    ahead.drop();
    const int before = data.batches_read;
    for (std::uint64_t i = 0; i < 8; ++i) {
      ASSERT_TRUE(ahead.has_room());
      ahead.plan({.epoch = 0, .position = 50 + i, .size = 1});
    }
    EXPECT_FALSE(ahead.has_room());
    for (std::uint64_t i = 0; i < 8; ++i) {
      EXPECT_EQ(taken(ahead), std::vector<std::uint64_t>{50 + i});
    }
    EXPECT_EQ(data.batches_read, before + 8);
  }
}

TEST(ReadAhead, AnErrorComesOutAtItsBatchAndStays) {
  const CountedReads data(3);
  const Sampler in_order(100, 1, false);
  ReadAhead ahead(data, in_order, 2, 4);
  ahead.plan({.epoch = 0, .position = 0, .size = 2});
  ahead.plan({.epoch = 0, .position = 2, .size = 2});
  EXPECT_EQ(taken(ahead).size(), 2U);
  EXPECT_THROW((void)taken(ahead), FileError);
  EXPECT_THROW((void)taken(ahead), FileError);
  ahead.drop();
  ahead.plan({.epoch = 0, .position = 4, .size = 2});
  EXPECT_EQ(taken(ahead), (std::vector<std::uint64_t>{4, 5}));
}

}  // namespace
}  // namespace distbelief
