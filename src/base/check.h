#pragma once

#include <source_location>
#include <string_view>

namespace distbelief {

[[noreturn]] void fail_check(std::string_view message, const std::source_location& where);

/// States what must be true unless this program has a bug; prints the place and aborts when it is not.
inline void check(bool condition, std::string_view message,
                  const std::source_location& where = std::source_location::current()) {
  if (!condition) [[unlikely]] {
    fail_check(message, where);
  }
}

}  // namespace distbelief
