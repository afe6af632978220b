#include "train/speed_probe.h"

#include <vector>

#include "base/clock.h"
#include "base/parallel.h"
#include "tensor/gemm.h"

namespace distbelief {
namespace {

constexpr std::int64_t kSide = 512;
constexpr double kSeconds = 0.3;

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
  double products = 0;
  double seconds = 0;
  for (const Clock::time_point began = Clock::now(); seconds < kSeconds; seconds = seconds_since(began)) {
    multiply();
    ++products;
  }
  return products * 2 * kSide * kSide * kSide / seconds;
}

}  // namespace distbelief
