#pragma once

#include <cstdint>

namespace distbelief {

enum class Transpose : char { no = 'N', yes = 'T' };

/// C (m×n) = op(A) (m×k) × op(B) (k×n) + beta × C; all row-major and dense, A and B as they lie in memory before op.
void gemm(Transpose transpose_a, Transpose transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, const float* a,
          const float* b, float beta, float* c);

/// The same with leading dimensions, for parts of larger matrices.
void gemm(Transpose transpose_a, Transpose transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, const float* a,
          std::int64_t lda, const float* b, std::int64_t ldb, float beta, float* c, std::int64_t ldc);

}  // namespace distbelief
