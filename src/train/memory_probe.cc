#include "train/memory_probe.h"

#include <algorithm>
#include <limits>
#include <memory>

#include "base/clock.h"
#include "base/parallel.h"
#include "exec/busy_others.h"
#include "tensor/vector_ops.h"

namespace distbelief {
namespace {

constexpr std::int64_t kFloats = std::int64_t{8} << 20;
constexpr int kPasses = 8;

/// Two arrays, of which one is added to the other.
class Sums {
 public:
  explicit Sums(int threads)
      : values_(static_cast<std::size_t>(kFloats), 0.5F), changes_(static_cast<std::size_t>(kFloats), 1e-9F) {
    set_thread_count(threads);
  }
  void operator()() { add(values_.data(), changes_.data(), values_.data(), kFloats); }

 private:
  std::vector<float> values_;
  std::vector<float> changes_;
};

}  // namespace

double probe_memory(const TimedLoad& load) {
  const BusyOthers others(load.processes - 1, [&] {
    return [sums = std::make_shared<Sums>(load.threads)] { (*sums)(); };  // shared: a function can be copied
  });
  Sums sums(load.threads);
  double least = std::numeric_limits<double>::infinity();
  for (int pass = 0; pass < kPasses; ++pass) {
    const Clock::time_point began = Clock::now();
    sums();
    least = std::min(least, seconds_since(began));
  }
  return 3.0 * static_cast<double>(kFloats * sizeof(float)) / least;  // two are read, one is written
}

}  // namespace distbelief
