#pragma once

#include <string>
#include <string_view>

namespace distbelief {

/// The text as json_text() writes it: each longest beginning of a character that is none becomes U+FFFD.
std::string utf8_text(std::string_view text);

}  // namespace distbelief
