#include "base/parallel.h"

#include <omp.h>

#include <algorithm>
#ifdef DISTBELIEF_STD_THREADS
#include <thread>
#include <vector>
#endif

namespace distbelief {

#ifdef DISTBELIEF_STD_THREADS

namespace {
thread_local int threads_here = 1;

void run_threads(int count, const std::function<void(int)>& body) {
  std::vector<std::jthread> others;
  for (int i = 1; i < count; ++i) {
    others.emplace_back([&body, i] { body(i); });
  }
  body(0);
}

template <typename Body>
void run_alone(const Body& body) {
  body();
}
}  // namespace

int thread_count() { return threads_here; }

void set_thread_count(int threads) {
  threads_here = std::max(1, threads);
  omp_set_num_threads(1);  // libgomp is not instrumented: oneDNN stays on the calling thread
}

#else

namespace {
template <typename Body>
void run_threads(int count, const Body& body) {
#pragma omp parallel num_threads(count)
  body(omp_get_thread_num());
}

/// As a team of one. oneDNN's batch norm has barriers, which otherwise would be those of all lanes: lanes that meet
/// unequally many then wait for each other for ever.
template <typename Body>
void run_alone(const Body& body) {
#pragma omp parallel num_threads(1)
  body();
}
}  // namespace

int thread_count() { return omp_in_parallel() != 0 ? 1 : omp_get_max_threads(); }

void set_thread_count(int threads) { omp_set_num_threads(std::max(1, threads)); }

#endif

void parallel_for(std::int64_t count, std::int64_t grain,
                  const std::function<void(std::int64_t begin, std::int64_t end)>& body) {
  const std::int64_t most = std::max<std::int64_t>(1, count / std::max<std::int64_t>(1, grain));
  const int parts = static_cast<int>(std::min<std::int64_t>(most, thread_count()));
  if (parts <= 1) {
    if (count > 0) {
      body(0, count);
    }
    return;
  }
  run_threads(parts, [&](int part) { body(count * part / parts, count * (part + 1) / parts); });
}

void parallel_lanes(int lanes, const std::function<void(int lane)>& lane) {
  const int before = thread_count();
  if (lanes <= 1) {
    set_thread_count(1);
    lane(0);
  } else {
    run_threads(lanes, [&](int i) {
      set_thread_count(1);
      run_alone([&] { lane(i); });
    });
  }
  set_thread_count(before);
}

}  // namespace distbelief
