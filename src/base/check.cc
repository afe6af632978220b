#include "base/check.h"

#include <cstdlib>

#include "base/print.h"

namespace distbelief {

void fail_check(std::string_view message, const SourcePlace& where) {
  print_error("distbelief: bug at {}:{} in {}: {}\n", where.file_name(), where.line(), where.function_name(), message);
  std::abort();
}

}  // namespace distbelief
