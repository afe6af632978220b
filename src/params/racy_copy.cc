#include "params/racy_copy.h"

namespace distbelief {
namespace {

// Opaque to the optimizer between load and store, so that the loop is neither taken for a memcpy (whose calls
// ThreadSanitizer sees, and which may move bytes in any order) nor are loads repeated.
#if defined(__x86_64__)
using Vector [[gnu::vector_size(16), gnu::aligned(4), gnu::may_alias]] = float;
#define DISTBELIEF_OPAQUE(vector) asm volatile("" : "+x"(vector))
#elif defined(__aarch64__)
using Vector [[gnu::vector_size(16), gnu::aligned(4), gnu::may_alias]] = float;
#define DISTBELIEF_OPAQUE(vector) asm volatile("" : "+w"(vector))
#endif

/// Either side may be the shared one.
__attribute__((no_sanitize("thread"), noinline)) void racy_copy(const float* from, float* to, std::int64_t count) {
  std::int64_t i = 0;
#ifdef DISTBELIEF_OPAQUE
  constexpr std::int64_t kFloats = 4;
  for (; i + 2 * kFloats <= count; i += 2 * kFloats) {
    Vector first = *reinterpret_cast<const Vector*>(from + i);
    Vector second = *reinterpret_cast<const Vector*>(from + i + kFloats);
    DISTBELIEF_OPAQUE(first);
    DISTBELIEF_OPAQUE(second);
    *reinterpret_cast<Vector*>(to + i) = first;
    *reinterpret_cast<Vector*>(to + i + kFloats) = second;
  }
#endif
  for (; i < count; ++i) {
    float value = 0;
    __atomic_load(from + i, &value, __ATOMIC_RELAXED);
    __atomic_store(to + i, &value, __ATOMIC_RELAXED);
  }
}

}  // namespace

void racy_read(const float* shared, float* out, std::int64_t count) { racy_copy(shared, out, count); }

void racy_write(const float* values, float* shared, std::int64_t count) { racy_copy(values, shared, count); }

}  // namespace distbelief
