#include "graph/layers/sample_lanes.h"

#include "base/multiversion.h"

namespace distbelief {
namespace {

/// Eight rows of eight become eight columns.
inline __attribute__((always_inline)) void transpose(Vector (&v)[kVectorFloats]) {
  Vector pairs[kVectorFloats];
  DISTBELIEF_UNROLL for (int i = 0; i < 4; ++i) {
    pairs[2 * i] = __builtin_shufflevector(v[2 * i], v[2 * i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    pairs[2 * i + 1] = __builtin_shufflevector(v[2 * i], v[2 * i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  Vector fours[kVectorFloats];
  DISTBELIEF_UNROLL for (int half = 0; half < 2; ++half) {
    DISTBELIEF_UNROLL for (int i = 0; i < 2; ++i) {
      const Vector& a = pairs[4 * half + i];
      const Vector& b = pairs[4 * half + i + 2];
      fours[4 * half + 2 * i] = __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13);
      fours[4 * half + 2 * i + 1] = __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
    }
  }
  DISTBELIEF_UNROLL for (int i = 0; i < 4; ++i) {
    v[i] = __builtin_shufflevector(fours[i], fours[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    v[i + 4] = __builtin_shufflevector(fours[i], fours[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

const Vector& at(const float* floats) { return *reinterpret_cast<const Vector*>(floats); }
Vector& at(float* floats) { return *reinterpret_cast<Vector*>(floats); }

}  // namespace

DISTBELIEF_MULTIVERSION void interleave(const float* rows, std::int64_t stride, std::int64_t lanes, std::int64_t count,
                                        float* out) {
  std::int64_t i = 0;
  for (; i + kVectorFloats <= count; i += kVectorFloats) {
    DISTBELIEF_UNROLL for (std::int64_t first = 0; first < kLanes; first += kVectorFloats) {
      Vector v[kVectorFloats];
      DISTBELIEF_UNROLL for (std::int64_t j = 0; j < kVectorFloats; ++j) {
        v[j] = first + j < lanes ? at(rows + (first + j) * stride + i) : Vector{};
      }
      transpose(v);
      DISTBELIEF_UNROLL for (std::int64_t j = 0; j < kVectorFloats; ++j) { at(out + (i + j) * kLanes + first) = v[j]; }
    }
  }
  for (; i < count; ++i) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      out[i * kLanes + lane] = lane < lanes ? rows[lane * stride + i] : 0.0F;
    }
  }
}

DISTBELIEF_MULTIVERSION void separate(const float* in, std::int64_t count, float* rows, std::int64_t stride,
                                      std::int64_t lanes) {
  std::int64_t i = 0;
  for (; i + kVectorFloats <= count; i += kVectorFloats) {
    for (std::int64_t first = 0; first < lanes; first += kVectorFloats) {
      Vector v[kVectorFloats];
      DISTBELIEF_UNROLL for (std::int64_t j = 0; j < kVectorFloats; ++j) { v[j] = at(in + (i + j) * kLanes + first); }
      transpose(v);
      for (std::int64_t j = 0; j < kVectorFloats && first + j < lanes; ++j) {
        at(rows + (first + j) * stride + i) = v[j];
      }
    }
  }
  for (; i < count; ++i) {
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      rows[lane * stride + i] = in[i * kLanes + lane];
    }
  }
}

}  // namespace distbelief
