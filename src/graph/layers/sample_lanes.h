#pragma once

#include <cstdint>

namespace distbelief {

// Samples side by side: element i of sixteen samples as sixteen floats, one after the other. Loops over them are long
// vectors whatever the shapes are.

constexpr std::int64_t kLanes = 16;

/// Half of the lanes: eight floats, anywhere in memory.
using Vector = float __attribute__((vector_size(32), aligned(4), may_alias));
constexpr int kVectorFloats = 8;

/// rows[lane][i] goes to out[i][lane] for i < count, rows being `stride` floats apart; lanes from `lanes` on become
/// zeros.
void interleave(const float* rows, std::int64_t stride, std::int64_t lanes, std::int64_t count, float* out);

/// The way back: in[i][lane] goes to rows[lane][i], for lanes below `lanes`.
void separate(const float* in, std::int64_t count, float* rows, std::int64_t stride, std::int64_t lanes);

}  // namespace distbelief
