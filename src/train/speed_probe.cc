#include "train/speed_probe.h"

#include <algorithm>
#include <vector>

#include "base/clock.h"
#include "base/parallel.h"
#include "tensor/gemm.h"

namespace distbelief {
namespace {

constexpr std::int64_t kSide = 512;
constexpr int kWindows = 4;
constexpr double kSecondsOfAWindow = 0.1;

}  // namespace

double probe_speed(int threads) {
  set_thread_count(threads);
  const std::vector<float> a(kSide * kSide, 0.5F);
  const std::vector<float> b(kSide * kSide, 0.25F);
  std::vector<float> product(kSide * kSide);
  const auto multiply = [&] {
    gemm(Transpose::no, Transpose::no, kSide, kSide, kSide, a.data(), b.data(), 0, product.data());
  };
  multiply();  // the first makes itself ready
  double most = 0;
  for (int window = 0; window < kWindows; ++window) {
    double products = 0;
    double seconds = 0;
    for (const Clock::time_point began = Clock::now(); seconds < kSecondsOfAWindow; seconds = seconds_since(began)) {
      multiply();
      ++products;
    }
    most = std::max(most, products / seconds);
  }
  return most * 2 * kSide * kSide * kSide;
}

}  // namespace distbelief
