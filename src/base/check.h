#pragma once

#include <source_location>
#include <string_view>

namespace distbelief {

#ifdef __cpp_lib_source_location
using SourcePlace = std::source_location;
#else
/// For clang 14, which our fuzz targets are built with and which cannot give libstdc++ a source_location.
class SourcePlace {
 public:
  static SourcePlace current(const char* file = __builtin_FILE(), unsigned line = __builtin_LINE(),
                             const char* function = __builtin_FUNCTION()) {
    SourcePlace place;
    place.file_ = file;
    place.line_ = line;
    place.function_ = function;
    return place;
  }
  const char* file_name() const { return file_; }
  unsigned line() const { return line_; }
  const char* function_name() const { return function_; }

 private:
  const char* file_ = "";
  unsigned line_ = 0;
  const char* function_ = "";
};
#endif

[[noreturn]] void fail_check(std::string_view message, const SourcePlace& where);

/// States what must be true unless this program has a bug; prints the place and aborts when it is not.
inline void check(bool condition, std::string_view message, const SourcePlace& where = SourcePlace::current()) {
  if (!condition) [[unlikely]] {
    fail_check(message, where);
  }
}

}  // namespace distbelief
