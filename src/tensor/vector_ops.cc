#include "tensor/vector_ops.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/multiversion.h"
#include "base/parallel.h"

namespace distbelief {
namespace {

constexpr std::int64_t kGrain = 1 << 14;

// Outputs may be one of the inputs (in place), so these are not __restrict: the compiler checks for overlap once a
// call.

DISTBELIEF_MULTIVERSION void add_part(const float* a, const float* b, float* out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] = a[i] + b[i];
  }
}

DISTBELIEF_MULTIVERSION void add_relu_part(const float* a, const float* b, float* out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float sum = a[i] + b[i];
    out[i] = sum < 0 ? 0 : sum;
  }
}

DISTBELIEF_MULTIVERSION void relu_part(const float* in, float* out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] = in[i] < 0 ? 0 : in[i];
  }
}

DISTBELIEF_MULTIVERSION void relu_backward_part(const float* output, const float* gradient, float* out,
                                                std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] = output[i] > 0 ? gradient[i] : 0;
  }
}

DISTBELIEF_MULTIVERSION void relu_backward_sum_part(const float* output, const float* a, const float* b, float* out,
                                                    std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float sum = a[i] + b[i];
    out[i] = output[i] > 0 ? sum : 0;
  }
}

DISTBELIEF_MULTIVERSION void add_bias_row(float* __restrict row, const float* __restrict bias, std::int64_t columns,
                                          bool clamp) {
  if (clamp) {
    for (std::int64_t c = 0; c < columns; ++c) {
      const float sum = row[c] + bias[c];
      row[c] = sum < 0 ? 0 : sum;
    }
  } else {
    for (std::int64_t c = 0; c < columns; ++c) {
      row[c] += bias[c];
    }
  }
}

DISTBELIEF_MULTIVERSION void add_row(const float* __restrict row, float* __restrict out, std::int64_t columns) {
  for (std::int64_t c = 0; c < columns; ++c) {
    out[c] += row[c];
  }
}

DISTBELIEF_MULTIVERSION void axpy_part(float a, const float* __restrict x, float* __restrict y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    y[i] += a * x[i];
  }
}

DISTBELIEF_MULTIVERSION float dot_part(const float* __restrict x, const float* __restrict y, std::int64_t count) {
  constexpr int kLanes = 16;
  float partial[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      partial[lane] += x[i + lane] * y[i + lane];
    }
  }
  for (; i < count; ++i) {
    partial[0] += x[i] * y[i];
  }
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int lane = 0; lane < width; ++lane) {
      partial[lane] += partial[lane + width];
    }
  }
  return partial[0];
}

DISTBELIEF_MULTIVERSION void pull_towards_part(const float* __restrict target, float rate, float* __restrict values,
                                               std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    values[i] += rate * (target[i] - values[i]);
  }
}

/// In lanes, so that it vectorises without the compiler having to reorder additions.
DISTBELIEF_MULTIVERSION double dot_in_double_part(const float* x, const float* y, std::int64_t count) {
  constexpr int kLanes = 16;
  double lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      lanes[lane] += static_cast<double>(x[i + lane]) * static_cast<double>(y[i + lane]);
    }
  }
  for (int lane = 0; i < count; ++i, ++lane) {
    lanes[lane] += static_cast<double>(x[i]) * static_cast<double>(y[i]);
  }
  double sum = 0;
  for (const double lane : lanes) {
    sum += lane;
  }
  return sum;
}

DISTBELIEF_MULTIVERSION void scale_part(float factor, float* values, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    values[i] *= factor;
  }
}

DISTBELIEF_MULTIVERSION void multiply_part(const float* __restrict x, float* __restrict y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    y[i] *= x[i];
  }
}

DISTBELIEF_MULTIVERSION bool all_finite_part(const float* values, std::int64_t count) {
  std::uint32_t largest = 0;
#pragma GCC unroll 4
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint32_t bits;
    std::memcpy(&bits, values + i, sizeof bits);
    largest = std::max(largest, bits & 0x7FFFFFFFU);
  }
  return largest < 0x7F800000U;  // an exponent of all ones is NaN or infinity
}

}  // namespace

void add(const float* a, const float* b, float* out, std::int64_t count) {
  parallel_for(count, kGrain,
               [=](std::int64_t begin, std::int64_t end) { add_part(a + begin, b + begin, out + begin, end - begin); });
}

void add_relu(const float* a, const float* b, float* out, std::int64_t count) {
  parallel_for(count, kGrain, [=](std::int64_t begin, std::int64_t end) {
    add_relu_part(a + begin, b + begin, out + begin, end - begin);
  });
}

void relu(const float* in, float* out, std::int64_t count) {
  parallel_for(count, kGrain,
               [=](std::int64_t begin, std::int64_t end) { relu_part(in + begin, out + begin, end - begin); });
}

void relu_backward(const float* output, const float* gradient, float* out, std::int64_t count) {
  parallel_for(count, kGrain, [=](std::int64_t begin, std::int64_t end) {
    relu_backward_part(output + begin, gradient + begin, out + begin, end - begin);
  });
}

void relu_backward_sum(const float* output, const float* a, const float* b, float* out, std::int64_t count) {
  parallel_for(count, kGrain, [=](std::int64_t begin, std::int64_t end) {
    relu_backward_sum_part(output + begin, a + begin, b + begin, out + begin, end - begin);
  });
}

void add_bias(float* matrix, const float* bias, std::int64_t rows, std::int64_t columns, bool clamp) {
  parallel_for(rows, std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, columns)),
               [=](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t r = begin; r < end; ++r) {
                   add_bias_row(matrix + r * columns, bias, columns, clamp);
                 }
               });
}

void sum_rows(const float* matrix, std::int64_t rows, std::int64_t columns, float* out) {
  parallel_for(columns, std::max<std::int64_t>(64, kGrain / std::max<std::int64_t>(1, rows)),
               [=](std::int64_t begin, std::int64_t end) {
                 std::fill(out + begin, out + end, 0.0F);
                 for (std::int64_t r = 0; r < rows; ++r) {
                   add_row(matrix + r * columns + begin, out + begin, end - begin);
                 }
               });
}

void axpy(float a, const float* x, float* y, std::int64_t count) { axpy_part(a, x, y, count); }

float dot(const float* x, const float* y, std::int64_t count) { return dot_part(x, y, count); }

void pull_towards(const float* target, float rate, float* values, std::int64_t count) {
  pull_towards_part(target, rate, values, count);
}

void scale(float factor, float* values, std::int64_t count) { scale_part(factor, values, count); }

void multiply(const float* x, float* y, std::int64_t count) { multiply_part(x, y, count); }

double dot_in_double(const float* x, const float* y, std::int64_t count) { return dot_in_double_part(x, y, count); }

double square_sum(const float* values, std::int64_t count) { return dot_in_double_part(values, values, count); }

bool all_finite(const float* values, std::int64_t count) { return all_finite_part(values, count); }

}  // namespace distbelief
