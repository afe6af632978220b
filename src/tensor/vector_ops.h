#pragma once

#include <cstdint>

namespace distbelief {

// Loops over floats that are bound by memory, written once and vectorised. Each runs on the calling thread, unless its
// comment says "parallel". Arrays do not overlap, unless they are the same array. A clamp lets NaN through, so that it
// is seen.

/// out[i] = a[i] + b[i]; parallel.
void add(const float* a, const float* b, float* out, std::int64_t count);
/// out[i] = max(0, a[i] + b[i]); parallel.
void add_relu(const float* a, const float* b, float* out, std::int64_t count);
/// out[i] = max(0, in[i]); parallel.
void relu(const float* in, float* out, std::int64_t count);
/// out[i] = output[i] > 0 ? gradient[i] : 0; parallel.
void relu_backward(const float* output, const float* gradient, float* out, std::int64_t count);
/// out[i] = output[i] > 0 ? a[i] + b[i] : 0; parallel.
void relu_backward_sum(const float* output, const float* a, const float* b, float* out, std::int64_t count);
/// Each of `rows` rows of `columns` += bias; then, when `clamp`, max(0, ·). Parallel over rows.
void add_bias(float* matrix, const float* bias, std::int64_t rows, std::int64_t columns, bool clamp);
/// out[c] = sum over rows of matrix[r][c], rows in order; parallel over columns.
void sum_rows(const float* matrix, std::int64_t rows, std::int64_t columns, float* out);
/// y[i] += a * x[i].
void axpy(float a, const float* x, float* y, std::int64_t count);
/// values[i] *= factor.
void scale(float factor, float* values, std::int64_t count);
/// y[i] *= x[i].
void multiply(const float* x, float* y, std::int64_t count);
float dot(const float* x, const float* y, std::int64_t count);
/// The same, summed in double.
double dot_in_double(const float* x, const float* y, std::int64_t count);
/// values[i] += rate * (target[i] - values[i]).
void pull_towards(const float* target, float rate, float* values, std::int64_t count);
double square_sum(const float* values, std::int64_t count);
/// True when no element is NaN or infinite.
bool all_finite(const float* values, std::int64_t count);

}  // namespace distbelief
