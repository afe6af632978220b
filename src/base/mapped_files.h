#pragma once

#include <cstddef>

namespace distbelief {

// Which files are mapped where, for the moment when one of them becomes shorter in somebody else's hands: whoever reads
// what is gone gets SIGBUS, in the middle of anything.

/// `name` must live as long as the entry. Returns where it is, or -1 when the table is full. Thread-safe.
int remember_mapping(const void* begin, std::size_t size, const char* name);
void forget_mapping(int place);

/// From now on SIGBUS in a remembered mapping ends the process with code 2 and a line on standard error that names the
/// file. Elsewhere it does what it did.
void name_files_that_shrink();

}  // namespace distbelief
