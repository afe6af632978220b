#include "checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

namespace distbelief {

CLI::Validator whole_number(std::int64_t least, std::int64_t most) {
  return CLI::Validator(
      [least, most](std::string& text) -> std::string {
        std::int64_t value = 0;
        const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        const bool sound = error == std::errc() && stop == text.data() + text.size();
        return sound && value >= least && value <= most
                   ? ""
                   : fmt::format("expected a whole number from {} to {}, got '{}'", least, most, text);
      },
      "");
}

CLI::Validator one_of(std::vector<std::string> words) {
  return CLI::Validator(
      [words = std::move(words)](std::string& text) -> std::string {
        return std::find(words.begin(), words.end(), text) != words.end()
                   ? ""
                   : fmt::format("expected {}, got '{}'", fmt::join(words, " or "), text);
      },
      "");
}

}  // namespace distbelief
