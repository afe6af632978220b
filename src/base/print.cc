#include "base/print.h"

#include <cerrno>
#include <cstring>

namespace distbelief {

void print_text(std::FILE* stream, std::string_view text) noexcept {
  static_cast<void>(std::fwrite(text.data(), 1, text.size(), stream));  // flush_printed() tells
}

std::string flush_printed(std::FILE* stream) {
  const bool failed_before = std::ferror(stream) != 0;
  errno = 0;
  const bool fails = std::fflush(stream) != 0;
  if (!fails && !failed_before) {
    return {};
  }
  return errno == 0 ? "cannot write" : fmt::format("cannot write: {}", std::strerror(errno));
}

}  // namespace distbelief
