#pragma once

#include <cstdint>
#include <string>

namespace distbelief {

/// What tells the process with this number, as seen from here, from all others of all machines: when it began, and
/// which start of which machine that was. Empty: there is none, it has ended and is not reaped yet, or this is not
/// Linux. Who says this of itself, and is seen so by another, can be watched by that one.
std::string process_identity(std::int64_t pid);

}  // namespace distbelief
