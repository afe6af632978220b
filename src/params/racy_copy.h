#pragma once

#include <cstdint>

namespace distbelief {

// The one deliberate data race of the project. Threads of Hogwild! (Niu et al. 2011) read and write dense blocks of
// shared parameters with these two functions and nothing else, at the same time and without order: a reader may find
// some floats before and some after another's update, and of two updates of the same floats one may be lost. The
// algorithm bears that. What it could not bear is a torn float, and there is none: floats are aligned, and a vector
// load or store moves each of them whole on the machines that we build for.
//
// To the language this is a data race all the same. Relaxed atomics would make it none, but compilers do not vectorise
// them: 11 times slower in cache, 2.2 times from memory. So the copies are vectors that the optimizer cannot look into,
// and ThreadSanitizer is told to look away, here and only here. Sparse rows, which are short, use relaxed atomics
// (LockFreeShard).

/// out[i] = shared[i]; `out` is the caller's alone.
void racy_read(const float* shared, float* out, std::int64_t count);
/// shared[i] = values[i]; `values` are the caller's alone.
void racy_write(const float* values, float* shared, std::int64_t count);

}  // namespace distbelief
