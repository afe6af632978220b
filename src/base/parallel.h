#pragma once

#include <cstdint>
#include <functional>

namespace distbelief {

/// How many threads parallel_for() and the kernels use when called from this thread.
int thread_count();
void set_thread_count(int threads);

/// Calls body(begin, end) on disjoint parts that cover [0, count), on at most thread_count() threads; parts are not
/// smaller than `grain` and their number depends on nothing but count, grain and thread_count(). Returns when all are
/// done. `body` must not throw. OpenMP's pool, which oneDNN shares; std threads under ThreadSanitizer.
void parallel_for(std::int64_t count, std::int64_t grain,
                  const std::function<void(std::int64_t begin, std::int64_t end)>& body);

/// Calls lane(i) for each i in [0, lanes), each on a thread of its own at the same time, with thread_count() == 1
/// inside. A lane may call parallel_for() and kernels; they run on its one thread. `lane` must not throw.
void parallel_lanes(int lanes, const std::function<void(int lane)>& lane);

}  // namespace distbelief
