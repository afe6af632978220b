// The matrix products of the dense models, as the engine computes them and as oneDNN does when asked directly. One line
// a product; medians of rounds in turn.
//   bench_gemm [THREADS]

#include <dnnl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <vector>

#include "base/clock.h"
#include "base/parallel.h"
#include "tensor/buffer.h"
#include "tensor/gemm.h"

namespace distbelief {
namespace {

struct Product {
  const char* name;
  Transpose a, b;
  std::int64_t m, n, k;
};

double median_seconds(std::vector<double> seconds) {
  std::ranges::sort(seconds);
  return seconds[seconds.size() / 2];
}

void compare(const Product& product, int threads) {
  const auto [name, ta, tb, m, n, k] = product;
  const Buffer a = float_buffer(m * k), b = float_buffer(k * n), c = float_buffer(m * n);
  for (const Buffer* each : {&a, &b}) {
    std::ranges::generate(each->as<float>(), [i = 0]() mutable { return static_cast<float>(++i % 7) - 3.0F; });
  }
  const float* pa = a.as<float>().data();
  const float* pb = b.as<float>().data();
  float* pc = c.as<float>().data();
  const std::function<void()> ours = [&] { gemm(ta, tb, m, n, k, pa, pb, 0, pc); };
  const std::function<void()> direct = [&] {
    if (dnnl_sgemm(static_cast<char>(ta), static_cast<char>(tb), m, n, k, 1, pa, ta == Transpose::no ? k : m, pb,
                   tb == Transpose::no ? n : k, 0, pc, n) != dnnl_success) {
      std::abort();
    }
  };
  const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  const int repeats = std::max(1, static_cast<int>(4e8 * threads / flops));
  const auto time = [&](const std::function<void()>& work) {
    const auto start = Clock::now();
    for (int i = 0; i < repeats; ++i) {
      work();
    }
    return seconds_since(start) / repeats;
  };
  std::vector<double> our_seconds, direct_seconds;
  for (int round = 0; round < 10; ++round) {
    our_seconds.push_back(time(ours));
    direct_seconds.push_back(time(direct));
  }
  const double our = median_seconds(our_seconds), dnnl = median_seconds(direct_seconds);
  fmt::print("{:<16} {}{} {:>5} {:>5} {:>5}   {:>6.1f} GFLOP/s   oneDNN directly {:>6.1f}   ratio {:.2f}\n", name,
             static_cast<char>(ta), static_cast<char>(tb), m, n, k, flops / our / 1e9, flops / dnnl / 1e9, dnnl / our);
}

void compare_dense(const char* name, std::int64_t batch, std::int64_t inputs, std::int64_t units, int threads) {
  compare({name, Transpose::no, Transpose::yes, batch, units, inputs}, threads);
  compare({name, Transpose::yes, Transpose::no, units, inputs, batch}, threads);
  compare({name, Transpose::no, Transpose::no, batch, inputs, units}, threads);
}

}  // namespace
}  // namespace distbelief

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::max(1, std::atoi(argv[1])) : 1;
  distbelief::set_thread_count(threads);
  for (const std::int64_t batch : {128, 64}) {
    distbelief::compare_dense("mlp, first", batch, 784, 512, threads);
    distbelief::compare_dense("mlp, second", batch, 512, 512, threads);
    distbelief::compare_dense("lenet, dense", batch, 3136, 512, threads);
  }
  for (const std::int64_t batch : {256, 128}) {
    distbelief::compare_dense("speech, hidden", batch, 2560, 2560, threads);
    distbelief::compare_dense("speech, last", batch, 2560, 8192, threads);
  }
}
