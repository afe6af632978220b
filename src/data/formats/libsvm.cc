#include "data/formats/libsvm.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "base/error.h"

namespace distbelief {
namespace {

constexpr std::string_view kBlanks = " \t\r";

/// Takes the next word off the front; empty at the end.
std::string_view take_word(std::string_view& line) {
  const std::size_t begin = line.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) {
    return line = {};
  }
  const std::size_t end = std::min(line.find_first_of(kBlanks, begin), line.size());
  const std::string_view word = line.substr(begin, end - begin);
  line.remove_prefix(end);
  return word;
}

void parse_line(std::string_view line, const LinePlace& place, TextRow& row) {
  row.values.clear();
  row.columns.clear();
  row.label.clear();
  line = line.substr(0, line.find('#'));
  std::string_view word = take_word(line);
  if (word.find(':') == std::string_view::npos) {
    row.label = word;
    word = take_word(line);
  }
  for (; !word.empty(); word = take_word(line)) {
    const std::size_t colon = word.find(':');
    const std::string_view index_text = word.substr(0, colon);
    std::int64_t index = 0;
    const auto result = std::from_chars(index_text.data(), index_text.data() + index_text.size(), index);
    if (colon == std::string_view::npos || result.ec != std::errc{} ||
        result.ptr != index_text.data() + index_text.size()) {
      throw FileError(fmt::format("{}: entry {}: expected INDEX:VALUE", place.text(), row.columns.size() + 1));
    }
    if (index < 1 || index > std::numeric_limits<std::int32_t>::max()) {
      throw FileError(fmt::format("{}: index {}: indices start at 1 and end below 2^31", place.text(), index));
    }
    if (!row.columns.empty() && index - 1 <= row.columns.back()) {
      throw FileError(
          fmt::format("{}: index {} after {}: indices must rise", place.text(), index, row.columns.back() + 1));
    }
    row.columns.push_back(static_cast<std::int32_t>(index - 1));
    const std::string_view text = word.substr(colon + 1);
    const std::optional<float> value = to_number(text);
    if (!value) {
      fail_number(text, place, "index", index);
    }
    row.values.push_back(*value);
  }
}

}  // namespace

std::shared_ptr<const Dataset> open_libsvm(const FileBytes& file, const TextOptions& options) {
  return open_text_rows(file, 1, true, parse_line, options);
}

}  // namespace distbelief
