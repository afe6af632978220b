#include "base/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

namespace distbelief {
namespace {

TEST(ParallelFor, CoversEveryIndexOnce) {
  set_thread_count(3);
  for (const std::int64_t count : {0, 1, 2, 7, 1000}) {
    std::vector<std::atomic<int>> hits(count);
    parallel_for(count, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        hits[i]++;
      }
    });
    for (const auto& hit : hits) {
      EXPECT_EQ(hit, 1);
    }
  }
  set_thread_count(1);
}

TEST(ParallelLanes, RunsEachLaneWithOneThreadInside) {
  set_thread_count(2);
  std::vector<int> inside(4, 0);
  parallel_lanes(4, [&](int lane) { inside[lane] = thread_count(); });
  EXPECT_EQ(inside, std::vector<int>(4, 1));
  EXPECT_EQ(thread_count(), 2);
  set_thread_count(1);
}

}  // namespace
}  // namespace distbelief
