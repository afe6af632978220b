#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

namespace distbelief {

// Words for people. What cannot be written, as on a full disk, stops nothing and throws nothing: fmt::print would.
// Thread-safe.

void print_text(std::FILE* stream, std::string_view text) noexcept;

/// To standard output, which keeps it until it is flushed.
template <typename... Values>
void print_out(fmt::format_string<Values...> format, Values&&... values) {
  print_text(stdout, fmt::format(format, std::forward<Values>(values)...));
}

/// To standard error, at once.
template <typename... Values>
void print_error(fmt::format_string<Values...> format, Values&&... values) {
  print_text(stderr, fmt::format(format, std::forward<Values>(values)...));
}

/// Flushes a stream. Empty, or why some of all that was printed there could not be written.
[[nodiscard]] std::string flush_printed(std::FILE* stream);

}  // namespace distbelief
