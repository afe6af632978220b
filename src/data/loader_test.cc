#include "data/loader.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "base/error.h"

namespace distbelief {
namespace {

/// One float a sample, its number; may fail at one sample. Not cheap, so that threads are used.
class Numbers final : public Dataset {
 public:
  explicit Numbers(std::uint64_t size, std::uint64_t broken = ~std::uint64_t{0}) : size_(size), broken_(broken) {
    spec_.input = Shape{1};
  }
  const SampleSpec& spec() const override { return spec_; }
  std::uint64_t size() const override { return size_; }
  bool cheap() const override { return false; }
  void read(std::span<const std::uint64_t> ids, std::uint64_t epoch, Batch& batch) const override {
    start_batch(spec_, ids, epoch, batch);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] == broken_) {
        throw FileError("sample is broken");
      }
      batch.dense[i] = static_cast<float>(ids[i]);
    }
    read_.fetch_add(ids.size());
  }
  std::uint64_t read_so_far() const { return read_; }

 private:
  std::uint64_t size_;
  std::uint64_t broken_;
  SampleSpec spec_;
  mutable std::atomic<std::uint64_t> read_ = 0;
};

/// What a loader hands out in the given number of epochs; -1 stands for an epoch's end.
std::vector<std::int64_t> all_of(Loader& loader, int epochs) {
  std::vector<std::int64_t> out;
  for (int ends = 0; ends < epochs;) {
    const Batch* batch = loader.next();
    if (batch == nullptr) {
      out.push_back(-1);
      ++ends;
      continue;
    }
    for (std::size_t i = 0; i < batch->ids.size(); ++i) {
      EXPECT_EQ(batch->dense[i], static_cast<float>(batch->ids[i]));
      out.push_back(static_cast<std::int64_t>(batch->ids[i]));
    }
  }
  return out;
}

TEST(Loader, ThreadsHandOutTheSamplersOrder) {
  const Numbers data(103);
  const Sampler sampler(103, 5, true);
  std::vector<std::int64_t> expected;
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
    for (std::uint64_t i = 0; i < 103; ++i) {
      expected.push_back(static_cast<std::int64_t>(sampler.at(epoch, i)));
    }
    expected.push_back(-1);
  }
  for (const int threads : {0, 1, 3}) {
    for (const int prefetch : {1, 4}) {
      Loader loader(data, sampler, {.batch = 10, .threads = threads, .prefetch = prefetch, .end_epoch = 3});
      EXPECT_EQ(all_of(loader, 3), expected) << threads << " threads";
      EXPECT_EQ(loader.next(), nullptr);
      EXPECT_EQ(loader.leased(), 309U);
      EXPECT_GE(loader.wait_seconds(), 0.0);
    }
  }
}

TEST(Loader, LastBatchIsSmallerOrLeftOut) {
  const Numbers data(25);
  const Sampler sampler(25, 5, false);
  Loader keeps(data, sampler, {.batch = 10, .threads = 2});
  EXPECT_EQ(keeps.next()->size(), 10);
  EXPECT_EQ(keeps.next()->size(), 10);
  EXPECT_EQ(keeps.next()->size(), 5);
  EXPECT_EQ(keeps.next(), nullptr);
  Loader drops(data, sampler, {.batch = 10, .threads = 2, .drop_last = true});
  EXPECT_EQ(all_of(drops, 1).size(), 21U);
  EXPECT_THROW(Loader(data, sampler, {.batch = 26, .drop_last = true}), InputError);
  EXPECT_THROW(Loader(data, sampler, {.batch = 0}), InputError);
}

TEST(Loader, ANewLoaderContinuesWhereAnotherStood) {
  const Numbers data(25);
  const Sampler sampler(25, 5, true);
  for (int steps = 0; steps <= 7; ++steps) {
    Loader first(data, sampler, {.batch = 10, .threads = 3});
    for (int i = 0; i < steps; ++i) {
      (void)first.next();
    }
    Loader second(data, sampler, {.batch = 10, .threads = 0, .epoch = first.epoch(), .position = first.position()});
    EXPECT_EQ(all_of(first, 2), all_of(second, 2)) << steps;
  }
}

TEST(Loader, PartsOfABatchMakeItUp) {
  const Numbers data(22);
  const Sampler sampler(22, 5, true);
  Loader whole(data, sampler, {.batch = 10});
  Loader parts[3] = {{data, sampler, {.batch = 10, .part = 0, .parts = 3}},
                     {data, sampler, {.batch = 10, .part = 1, .parts = 3}},
                     {data, sampler, {.batch = 10, .part = 2, .parts = 3}}};
  while (const Batch* batch = whole.next()) {
    std::vector<std::uint64_t> joined;
    for (Loader& part : parts) {
      const Batch* share = part.next();
      ASSERT_NE(share, nullptr);
      joined.insert(joined.end(), share->ids.begin(), share->ids.end());
    }
    EXPECT_EQ(joined, batch->ids);
  }
  EXPECT_EQ(parts[0].next(), nullptr);
}

TEST(Loader, AnySharesOfABatchMakeItUp) {
  const Numbers data(53);
  const Sampler sampler(53, 5, true);
  const std::vector<std::vector<std::int64_t>> all_shares = {{1, 1, 10}, {10, 1, 1}, {4, 4, 4}, {7, 0, 5}, {3, 8, 1}};
  for (const std::vector<std::int64_t>& shares : all_shares) {
    for (const std::uint64_t position : {0U, 1U, 12U, 47U}) {
      Loader whole(data, sampler, {.batch = 12, .position = position, .end_epoch = 2});
      std::vector<std::unique_ptr<Loader>> parts;
      for (int part = 0; part < 3; ++part) {
        parts.push_back(std::make_unique<Loader>(data, sampler,
                                                 LoaderOptions{.batch = 12,
                                                               .threads = part,
                                                               .position = position,
                                                               .end_epoch = 2,
                                                               .part = part,
                                                               .parts = 3,
                                                               .shares = shares}));
      }
      for (int epoch = 0; epoch < 2; ++epoch) {
        while (const Batch* batch = whole.next()) {
          std::vector<std::uint64_t> joined;
          for (std::size_t part = 0; part < 3; ++part) {
            const Batch* share = parts[part]->next();
            ASSERT_NE(share, nullptr);
            EXPECT_LE(share->size(), shares[part]);
            EXPECT_TRUE(batch->size() < 12 || share->size() == shares[part]);
            joined.insert(joined.end(), share->ids.begin(), share->ids.end());
          }
          EXPECT_EQ(joined, batch->ids);
        }
        for (const auto& part : parts) {
          EXPECT_EQ(part->next(), nullptr);
          EXPECT_EQ(part->position(), whole.position());
        }
      }
    }
  }
}

TEST(Loader, ErrorsOfAThreadComeOutAtTheirBatch) {
  const Numbers data(40, 25);
  const Sampler sampler(40, 5, false);
  Loader loader(data, sampler, {.batch = 10, .threads = 3});
  EXPECT_EQ(loader.next()->ids[0], 0U);
  EXPECT_EQ(loader.next()->ids[0], 10U);
  EXPECT_THROW((void)loader.next(), FileError);
  EXPECT_THROW((void)loader.next(), FileError);
  EXPECT_EQ(loader.leased(), 20U);
}

TEST(Loader, ReadsNoFurtherAheadThanAllowedAndStopsWhenDestroyed) {
  const Numbers data(1000000);
  const Sampler sampler(1000000, 5, true);
  {
    Loader loader(data, sampler, {.batch = 10, .threads = 3, .prefetch = 4});
    for (int i = 0; i < 5; ++i) {
      (void)loader.next();
    }
  }
  EXPECT_LE(data.read_so_far(), 10U * (5 + 5));
}

TEST(Loader, EndEpochMeansNothingIsReadBeyond) {
  const Numbers data(20);
  const Sampler sampler(20, 5, true);
  {
    Loader loader(data, sampler, {.batch = 10, .threads = 2, .prefetch = 8, .end_epoch = 1});
    EXPECT_EQ(all_of(loader, 3).size(), 23U);
  }
  EXPECT_EQ(data.read_so_far(), 20U);
}

TEST(Loader, ConsumersShareTheBatchesOfAnEpochOut) {
  const Numbers data(103);
  for (const int threads : {0, 2}) {
    Loader loader(data, Sampler(103, 7, true), {.batch = 10, .threads = threads, .end_epoch = 2});
    for (int epoch = 0; epoch < 2; ++epoch) {
      std::mutex mutex;
      std::multiset<std::uint64_t> seen;
      {
        std::vector<std::jthread> consumers;
        for (int i = 0; i < 3; ++i) {
          consumers.emplace_back([&] {
            Batch batch;
            while (loader.take(batch, 2)) {
              const std::scoped_lock lock(mutex);
              seen.insert(batch.ids.begin(), batch.ids.end());
            }
          });
        }
      }
      EXPECT_EQ(seen.size(), 103U);
      EXPECT_EQ(std::set(seen.begin(), seen.end()).size(), 103U);
      EXPECT_EQ(loader.position(), 103U);
      Batch batch;
      EXPECT_FALSE(loader.take(batch, 1));
      EXPECT_EQ(loader.next(), nullptr);
    }
    EXPECT_EQ(loader.leased(), 206U);
  }
}

TEST(Loader, OneConsumerTakesBatchesInTheSamplersOrder) {
  const Numbers data(43);
  Loader wanted(data, Sampler(43, 7, true), {.batch = 10, .threads = 0});
  Loader loader(data, Sampler(43, 7, true), {.batch = 10, .threads = 0});
  std::vector<std::int64_t> found;
  Batch batch;
  for (const std::size_t rows : {20U, 20U, 3U}) {
    ASSERT_TRUE(loader.take(batch, 2));
    EXPECT_EQ(batch.ids.size(), rows);
    found.insert(found.end(), batch.ids.begin(), batch.ids.end());
  }
  EXPECT_FALSE(loader.take(batch, 2));
  found.push_back(-1);
  EXPECT_EQ(found, all_of(wanted, 1));
}

TEST(Loader, GapsOfAnEpochComeOnceAndLaterEpochsBeginBehindWhatIsDone) {
  const Numbers data(50);
  Sampler sampler(50, 5, true);
  sampler.put_first(1, {{0, 12}, {20, 15}});
  sampler.put_first(2, {{40, 10}});
  sampler.put_first(3, {{0, 50}});
  std::vector<std::int64_t> expected;
  for (const std::uint64_t epoch : {1, 2, 3, 4}) {
    for (std::uint64_t i = sampler.done(epoch); i < 50; ++i) {
      expected.push_back(static_cast<std::int64_t>(sampler.at(epoch, i)));
    }
    expected.push_back(-1);
  }
  for (const int threads : {0, 2}) {
    Loader loader(data, sampler,
                  {.batch = 8, .threads = threads, .epoch = 1, .position = sampler.done(1), .end_epoch = 5});
    EXPECT_EQ(all_of(loader, 4), expected) << threads << " threads";
    EXPECT_EQ(loader.leased(), 23U + 40U + 50U);
  }
}

}  // namespace
}  // namespace distbelief
