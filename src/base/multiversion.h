#pragma once

/// Before a hot loop's function: the compiler makes one version for each level of the machine's vector instructions and
/// the loader picks the best. Not for templates, nor for functions that should be inlined.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(DISTBELIEF_SANITIZED)
#define DISTBELIEF_MULTIVERSION __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define DISTBELIEF_MULTIVERSION
#endif

/// Before a loop of few, fixed rounds over a small array: unrolled, the array lives in registers. -O2 leaves it rolled.
#define DISTBELIEF_UNROLL _Pragma("GCC unroll 16")
