#include "tensor/gemm.h"

#include <dnnl.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/parallel.h"
#include "tensor/buffer.h"

namespace distbelief {
namespace {

constexpr std::int64_t kCollidingFloats = 256;  ///< 1 KB

/// A matrix as it lies in memory: rows of which `leading` floats apart begin.
struct Matrix {
  const float* data;
  std::int64_t leading;
};

void multiply(Transpose transpose_a, Transpose transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, Matrix a,
              Matrix b, float beta, float* c, std::int64_t ldc) {
  const dnnl_status_t status = dnnl_sgemm(static_cast<char>(transpose_a), static_cast<char>(transpose_b), m, n, k, 1.0F,
                                          a.data, a.leading, b.data, b.leading, beta, c, ldc);
  check(status == dnnl_success, "dnnl_sgemm refused its arguments");
}

/// oneDNN multiplies narrow matrices where they lie. If B is not transposed and its rows are a multiple of 1 KB apart,
/// they fall into the same few sets of the cache, and it runs at 50 to 65 % of the peak; with other distances at 85 %
/// and more. Whether it works in place is its own rule of thumb (1/m + 1/n), repeated here. build/release/bench_gemm
/// measures it.
bool rows_collide(Transpose transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t ldb) {
  constexpr double kInPlace = 0.0038;
  constexpr std::int64_t kWorthACopy = 32;  // fewer rows or columns: the copy costs as much as the product
  return transpose_b == Transpose::no && ldb % kCollidingFloats == 0 && std::min({m, n, k}) >= kWorthACopy &&
         1.0 / static_cast<double>(m) + 1.0 / static_cast<double>(n) >= kInPlace;
}

std::int64_t spread_leading(std::int64_t columns) {
  const std::int64_t rounded = (columns + 15) / 16 * 16;
  return rounded % kCollidingFloats == 0 ? rounded + 16 : rounded;
}

/// Copies rows to `to`, a little further apart than a multiple of 1 KB.
Matrix spread(Matrix from, std::int64_t rows, std::int64_t columns, float* to) {
  const std::int64_t leading = spread_leading(columns);
  parallel_for(rows, 32, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      std::memcpy(to + row * leading, from.data + row * from.leading,
                  static_cast<std::size_t>(columns) * sizeof(float));
    }
  });
  return {to, leading};
}

/// The product as a sum over blocks of k, whose parts of A and B are copied to where their rows do not collide.
void multiply_spread(Transpose transpose_a, std::int64_t m, std::int64_t n, std::int64_t k, Matrix a, Matrix b,
                     float beta, float* c, std::int64_t ldc) {
  constexpr std::int64_t kBlock = 128;
  const std::int64_t block = std::min(k, kBlock);
  const bool turned = transpose_a == Transpose::yes;
  const auto floats_a = static_cast<std::size_t>(turned ? block * spread_leading(m) : m * spread_leading(block));
  const auto floats_b = static_cast<std::size_t>(block * spread_leading(n));
  thread_local Buffer scratch;  // grows to the largest need of this thread's first step, then stays
  if (scratch.bytes() < (floats_a + floats_b) * sizeof(float)) {
    scratch = Buffer();
    scratch = Buffer((floats_a + floats_b) * sizeof(float));
  }
  float* const copy_a = scratch.as<float>().data();
  float* const copy_b = copy_a + floats_a;
  for (std::int64_t first = 0; first < k; first += block) {
    const std::int64_t depth = std::min(block, k - first);
    const Matrix part_a = turned ? spread({a.data + first * a.leading, a.leading}, depth, m, copy_a)
                                 : spread({a.data + first, a.leading}, m, depth, copy_a);
    const Matrix part_b = spread({b.data + first * b.leading, b.leading}, depth, n, copy_b);
    multiply(transpose_a, Transpose::no, m, n, depth, part_a, part_b, first == 0 ? beta : 1.0F, c, ldc);
  }
}

}  // namespace

void gemm(Transpose transpose_a, Transpose transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, const float* a,
          const float* b, float beta, float* c) {
  gemm(transpose_a, transpose_b, m, n, k, a, transpose_a == Transpose::no ? k : m, b,
       transpose_b == Transpose::no ? n : k, beta, c, n);
}

void gemm(Transpose transpose_a, Transpose transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, const float* a,
          std::int64_t lda, const float* b, std::int64_t ldb, float beta, float* c, std::int64_t ldc) {
  if (rows_collide(transpose_b, m, n, k, ldb)) {
    multiply_spread(transpose_a, m, n, k, {a, lda}, {b, ldb}, beta, c, ldc);
  } else {
    multiply(transpose_a, transpose_b, m, n, k, {a, lda}, {b, ldb}, beta, c, ldc);
  }
}

}  // namespace distbelief
