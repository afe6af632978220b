#include "tensor/gemm.h"

#include <dnnl.h>

#include "base/check.h"

namespace distbelief {

void gemm(Transpose transpose_a, Transpose transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, const float* a,
          const float* b, float beta, float* c) {
  gemm(transpose_a, transpose_b, m, n, k, a, transpose_a == Transpose::no ? k : m, b,
       transpose_b == Transpose::no ? n : k, beta, c, n);
}

void gemm(Transpose transpose_a, Transpose transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, const float* a,
          std::int64_t lda, const float* b, std::int64_t ldb, float beta, float* c, std::int64_t ldc) {
  const dnnl_status_t status = dnnl_sgemm(static_cast<char>(transpose_a), static_cast<char>(transpose_b), m, n, k, 1.0F,
                                          a, lda, b, ldb, beta, c, ldc);
  check(status == dnnl_success, "dnnl_sgemm refused its arguments");
}

}  // namespace distbelief
