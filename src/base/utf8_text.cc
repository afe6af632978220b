#include "base/utf8_text.h"

#include <algorithm>
#include <cstdint>

namespace distbelief {
namespace {

struct Utf8Lead {
  std::size_t length = 0;                  ///< of the character; 0: none begins so
  std::uint8_t least = 0x80, most = 0xBF;  ///< of the second byte
};

Utf8Lead utf8_lead(std::uint8_t byte) {
  if (byte < 0x80) {
    return {1};
  }
  if (byte >= 0xC2 && byte <= 0xDF) {
    return {2};
  }
  if (byte >= 0xE0 && byte <= 0xEF) {
    return {3, static_cast<std::uint8_t>(byte == 0xE0 ? 0xA0 : 0x80),
            static_cast<std::uint8_t>(byte == 0xED ? 0x9F : 0xBF)};
  }
  if (byte >= 0xF0 && byte <= 0xF4) {
    return {4, static_cast<std::uint8_t>(byte == 0xF0 ? 0x90 : 0x80),
            static_cast<std::uint8_t>(byte == 0xF4 ? 0x8F : 0xBF)};
  }
  return {};
}

}  // namespace

std::string utf8_text(std::string_view text) {
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Lead lead = utf8_lead(static_cast<std::uint8_t>(text[at]));
    std::size_t good = 1;
    while (good < lead.length && at + good < text.size()) {
      const auto next = static_cast<std::uint8_t>(text[at + good]);
      if (next < (good == 1 ? lead.least : 0x80) || next > (good == 1 ? lead.most : 0xBF)) {
        break;
      }
      ++good;
    }
    out += good == lead.length ? text.substr(at, good) : kReplacement;
    at += good;
  }
  return out;
}

}  // namespace distbelief
