#include "base/check.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

namespace distbelief {

void fail_check(std::string_view message, const SourcePlace& where) {
  fmt::print(stderr, "distbelief: bug at {}:{} in {}: {}\n", where.file_name(), where.line(), where.function_name(),
             message);
  std::fflush(stderr);
  std::abort();
}

}  // namespace distbelief
