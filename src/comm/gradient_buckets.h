#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "comm/group.h"

namespace distbelief {

/// Sums a gradient over a group while backward still computes the rest of it. The flat space is cut into buckets; a
/// bucket's sum starts when all lanes are past it, in the order from the end of the space to its beginning, which is
/// the order of backward and the same on all members.
///
/// Between begin() and finish() the group belongs to the thread that lives here. begin() and finish() are for one
/// thread, final_from() for any.
class GradientBuckets {
 public:
  /// `group` is borrowed. The space has `floats` floats, of which those from `optimized` on (observed statistics) are
  /// final only at finish().
  GradientBuckets(Group& group, std::int64_t floats, std::int64_t optimized);
  ~GradientBuckets();
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;

  /// A step begins. Each lane is a span over the space, and stays until finish() has returned; the sum of all lanes of
  /// all members will be in the first. Waits for others end at the deadline.
  void begin(std::vector<std::span<float>> lanes, Clock::time_point deadline);
  /// This lane is final from `offset` on.
  void final_from(int lane, std::int64_t offset);
  /// All lanes are final. Returns when the sum is there, or how it failed.
  Outcome finish();

  /// Seconds that sums took, and those of them for which finish() waited: the rest was hidden behind backward.
  double summing_seconds() const { return summing_seconds_; }
  double waiting_seconds() const { return waiting_seconds_; }

 private:
  struct Bucket {
    std::int64_t begin, end;
  };
  void run(const std::stop_token& stop);
  Outcome sum_all(const std::stop_token& stop);

  Group& group_;
  const std::int64_t optimized_;
  std::vector<Bucket> buckets_;  // in the order in which they are summed

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<std::span<float>> lanes_;  // guarded by mutex_ where it changes: not while a step is open
  std::vector<std::int64_t> final_;      // guarded by mutex_: where each lane is final from
  Clock::time_point deadline_;           // guarded by mutex_
  bool open_ = false;                    // guarded by mutex_: a step has begun and is not summed yet
  std::optional<Outcome> outcome_;       // guarded by mutex_
  double summing_seconds_ = 0;           // guarded by mutex_
  double waiting_seconds_ = 0;           // of the thread that calls finish()
  std::jthread thread_;                  // last: it stops before the rest goes
};

}  // namespace distbelief
