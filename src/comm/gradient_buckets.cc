#include "comm/gradient_buckets.h"

#include <algorithm>
#include <functional>

#include "base/check.h"

namespace distbelief {
namespace {

/// Large enough that a sum's speed is that of memory, small enough that the first starts early.
constexpr std::int64_t kMostFloats = 1 << 20;
constexpr std::int64_t kLeastFloats = 1 << 16;
constexpr std::int64_t kBucketsWanted = 8;

}  // namespace

GradientBuckets::GradientBuckets(Group& group, std::int64_t floats, std::int64_t optimized)
    : group_(group), optimized_(optimized) {
  const std::int64_t size = std::clamp(optimized / kBucketsWanted, kLeastFloats, kMostFloats);
  for (std::int64_t end = optimized; end > 0; end = std::max<std::int64_t>(0, end - size)) {
    buckets_.push_back({std::max<std::int64_t>(0, end - size), end});
  }
  if (floats > optimized) {
    buckets_.push_back({optimized, floats});
  }
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

GradientBuckets::~GradientBuckets() = default;

void GradientBuckets::begin(std::vector<std::span<float>> lanes, Clock::time_point deadline) {
  const std::scoped_lock lock(mutex_);
  check(!open_, "a step is finished before the next begins");
  lanes_ = std::move(lanes);
  final_.assign(lanes_.size(), optimized_);
  deadline_ = deadline;
  outcome_.reset();
  open_ = true;
  changed_.notify_all();
}

void GradientBuckets::final_from(int lane, std::int64_t offset) {
  const std::scoped_lock lock(mutex_);
  final_[static_cast<std::size_t>(lane)] = offset;
  changed_.notify_all();
}

Outcome GradientBuckets::finish() {
  const auto start = Clock::now();
  std::unique_lock lock(mutex_);
  check(open_, "a step begins before it finishes");
  final_.assign(lanes_.size(), -1);
  changed_.notify_all();
  changed_.wait(lock, [&] { return outcome_.has_value(); });  // sum_all() ends by the deadline
  open_ = false;
  waiting_seconds_ += seconds_since(start);
  return *outcome_;
}

Outcome GradientBuckets::sum_all(const std::stop_token& stop) {
  for (const Bucket& bucket : buckets_) {
    Clock::time_point deadline;
    {
      std::unique_lock lock(mutex_);
      // As long as the step computes. It may also be given up: then we are destroyed without finish().
      const std::int64_t needed = bucket.begin >= optimized_ ? -1 : bucket.begin;
      const auto ready = [&] { return std::ranges::all_of(final_, [&](std::int64_t at) { return at <= needed; }); };
      if (!changed_.wait(lock, stop, ready)) {
        return {Outcome::Kind::timed_out, {}, "the step was given up"};
      }
      deadline = deadline_;
    }
    const auto start = Clock::now();
    const auto part = [&](std::size_t lane) {
      return lanes_[lane].subspan(static_cast<std::size_t>(bucket.begin),
                                  static_cast<std::size_t>(bucket.end - bucket.begin));
    };
    const std::span<float> sum = part(0);
    for (std::size_t lane = 1; lane < lanes_.size(); ++lane) {
      std::ranges::transform(sum, part(lane), sum.begin(), std::plus<>());
    }
    Outcome outcome = group_.all_reduce(sum, deadline);
    if (!outcome.ok()) {
      return outcome;
    }
    const std::scoped_lock lock(mutex_);
    summing_seconds_ += seconds_since(start);
  }
  return {};
}

void GradientBuckets::run(const std::stop_token& stop) {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      if (!changed_.wait(lock, stop, [&] { return open_ && !outcome_; })) {
        return;
      }
    }
    Outcome outcome = sum_all(stop);
    const std::scoped_lock lock(mutex_);
    outcome_ = std::move(outcome);
    changed_.notify_all();
  }
}

}  // namespace distbelief
