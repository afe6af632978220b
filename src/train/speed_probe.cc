#include "train/speed_probe.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/clock.h"
#include "base/parallel.h"
#include "tensor/gemm.h"

namespace distbelief {
namespace {

constexpr std::int64_t kSide = 512;
constexpr int kProducts = 9;

}  // namespace

double probe_speed(int threads) {
  set_thread_count(threads);
  const std::vector<float> a(kSide * kSide, 0.5F);
  const std::vector<float> b(kSide * kSide, 0.25F);
  std::vector<float> product(kSide * kSide);
  std::array<double, kProducts + 1> seconds = {};
  for (double& one : seconds) {
    const Clock::time_point began = Clock::now();
    gemm(Transpose::no, Transpose::no, kSide, kSide, kSide, a.data(), b.data(), 0, product.data());
    one = seconds_since(began);
  }
  // The first makes itself ready.
  const auto median = seconds.begin() + 1 + kProducts / 2;
  std::nth_element(seconds.begin() + 1, median, seconds.end());
  return 2.0 * kSide * kSide * kSide / *median;
}

}  // namespace distbelief
