#pragma once

#include <gtest/gtest.h>

#include <mutex>
#include <vector>

#include "strategy/test_member.h"

namespace distbelief {

/// For tests: samples in units of `batches` batches; an epoch is a lease. Remembers what was reported.
class UnitsOfTest : public TestSamples {
 public:
  UnitsOfTest(std::int64_t batch, int batches, std::uint64_t first_lease = 1)
      : TestSamples(batch, 0, 1), batch_(batch), batches_(batches), lease_(first_lease) {}
  const Batch* next() override {
    if (!TestSamples::take(lent_, 1)) {
      EXPECT_EQ(TestSamples::next(), nullptr);
      ++lease_;
      taken_ = 0;
      return nullptr;
    }
    const std::int64_t unit = batch_ * batches_;
    const std::int64_t seq = taken_ / unit;
    taken_ += lent_.size();
    const std::int64_t end = std::min((seq + 1) * unit, kSamples);
    unit_ = {.id = {lease_, static_cast<std::uint64_t>(seq)},
             .samples = {.epoch = 0, .first = seq * unit, .count = end - seq * unit},
             .ends = taken_ == end,
             .low_water = 0};
    return &lent_;
  }
  bool take(Batch& batches, std::int64_t most) override {
    const std::scoped_lock lock(mutex_);
    const std::int64_t end = unit_.samples.first + unit_.samples.count;
    if (taken_ == end) {
      return false;
    }
    EXPECT_TRUE(TestSamples::take(batches, std::min(most, (end - taken_ + batch_ - 1) / batch_)));
    taken_ += batches.size();
    unit_.ends = taken_ == end;
    return true;
  }
  PushUnit unit() const override { return unit_; }
  void reported(const PushUnit& unit) override { reported_units.push_back(unit.id); }
  bool refused(const PushUnit& unit) override {
    refused_units.push_back(unit.id);
    return unit_.id.seq > unit.id.seq;
  }

  std::vector<PushId> reported_units;
  std::vector<PushId> refused_units;

 private:
  const std::int64_t batch_;
  const int batches_;
  std::uint64_t lease_;
  std::mutex mutex_;  // of those who take()
  std::int64_t taken_ = 0;
  PushUnit unit_;
  Batch lent_;
};

}  // namespace distbelief
