#pragma once

#include <cstdint>
#include <string>

namespace distbelief {

/// How many cores this process may use: what taskset, a control group or a batch system left it.
int usable_cores();

/// The same for processes of one machine that may use the same cores.
std::uint64_t usable_cores_digest();

/// Binds this process, with all threads it has and will have, to its part of the cores it may use: `sharers` processes
/// have the same ones, and this is number `index` of them. Parts are nearly equal and of neighbouring cores, in the
/// order in which caches and memory lie. Returns which they are, "0-3" in the system's numbers; empty when nobody is
/// bound because a part would have fewer than `threads` cores.
std::string bind_to_share(int index, int sharers, int threads);

}  // namespace distbelief
