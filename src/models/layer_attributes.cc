#include "models/layer_attributes.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/nearest_name.h"

namespace distbelief {
namespace {

std::string shown(const AttributeValue& value) {
  if (!value.is_list) {
    return quoted(value.words[0]);
  }
  std::string items = quoted(fmt::format("{}", fmt::join(value.words, ", ")));
  items.front() = '[';
  items.back() = ']';
  return items;
}

std::string integer_kind(std::int64_t least) {
  return least == 0   ? "an integer of 0 or more"
         : least == 1 ? "a positive integer"
                      : fmt::format("an integer of {} or more", least);
}

}  // namespace

std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  return text;
}

std::string quoted(const std::string& text) {
  return fmt::format("'{}{}'", one_line(text.substr(0, 60)), text.size() > 60 ? "..." : "");
}

std::string file_place(const std::string& file, int line) { return line > 0 ? fmt::format("{}:{}", file, line) : file; }

LayerAttributes::LayerAttributes(std::string file, int line, std::string layer,
                                 std::map<std::string, AttributeValue> values, const SampleSpec& data)
    : file_(std::move(file)), line_(line), layer_(std::move(layer)), values_(std::move(values)), data_(data) {}

const AttributeValue* LayerAttributes::find(const std::string& key) {
  asked_.insert(key);
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

void LayerAttributes::refuse(const std::string& key, const std::string& expected) const {
  const AttributeValue& value = values_.at(key);
  throw FileError(fmt::format("{}: key '{}' of layer '{}': expected {}, got {}", file_place(file_, value.line), key,
                              layer_, expected, shown(value)));
}

void LayerAttributes::require(const std::string& key, const std::string& expected) {
  if (find(key) != nullptr) {
    return;
  }
  for (const auto& [found, value] : values_) {
    if (!asked_.contains(found) && is_misspelling(found.substr(0, 60), key)) {
      throw FileError(fmt::format("{}: key {} of layer '{}': there is no such key; did you mean '{}': {}?",
                                  file_place(file_, value.line), quoted(found), layer_, key, expected));
    }
  }
  throw FileError(
      fmt::format("{}: layer '{}' needs the key '{}': {}", file_place(file_, line_), layer_, key, expected));
}

std::int64_t LayerAttributes::to_integer(const std::string& key, const std::string& word, std::int64_t least,
                                         const std::string& expected) const {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (end != word.data() + word.size() || (error != std::errc{} && error != std::errc::result_out_of_range)) {
    refuse(key, expected);
  }
  if (error == std::errc::result_out_of_range || value > kMaxAttribute) {
    refuse(key, fmt::format("at most {}", kMaxAttribute));
  }
  if (value < least) {
    refuse(key, expected);
  }
  return value;
}

std::int64_t LayerAttributes::integer(const std::string& key, std::int64_t least, std::int64_t fallback) {
  const AttributeValue* value = find(key);
  if (value == nullptr) {
    return fallback;
  }
  if (value->is_list) {
    refuse(key, integer_kind(least));
  }
  return to_integer(key, value->words[0], least, integer_kind(least));
}

std::int64_t LayerAttributes::required_integer(const std::string& key, std::int64_t least) {
  require(key, integer_kind(least));
  return integer(key, least, 0);
}

std::int64_t LayerAttributes::outputs(const std::string& key) {
  const std::string expected = "a positive integer, 'classes' or 'targets'";
  require(key, expected);
  const AttributeValue& value = *find(key);
  if (value.is_list) {
    refuse(key, expected);
  }
  const std::string& word = value.words[0];
  if (word != "classes" && word != "targets") {
    return to_integer(key, word, 1, expected);
  }
  const std::int64_t count = word == "classes" ? data_.classes : data_.targets;
  if (count < 1) {
    refuse(key, fmt::format("a positive integer (the data has no {})", word));
  }
  return count;
}

float LayerAttributes::number(const std::string& key, float least, float most, float fallback) {
  const AttributeValue* value = find(key);
  if (value == nullptr) {
    return fallback;
  }
  const std::string expected = fmt::format("a number from {} to {}", least, most);
  if (value->is_list) {
    refuse(key, expected);
  }
  float number = 0;
  const std::string& word = value->words[0];
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc{} || end != word.data() + word.size() || !(number >= least && number <= most)) {
    refuse(key, expected);
  }
  return number;
}

bool LayerAttributes::flag(const std::string& key, bool fallback) {
  return word(key, {"true", "false"}, fallback ? "true" : "false") == "true";
}

std::string LayerAttributes::word(const std::string& key, const std::vector<std::string_view>& words,
                                  const std::string& fallback) {
  const AttributeValue* value = find(key);
  if (value == nullptr) {
    return fallback;
  }
  for (const std::string_view word : words) {
    if (!value->is_list && value->words[0] == word) {
      return std::string(word);
    }
  }
  refuse(key, fmt::format("{}", fmt::join(words, " or ")));
}

Extent LayerAttributes::extent(const std::string& key, std::int64_t least, Extent fallback) {
  const AttributeValue* value = find(key);
  if (value == nullptr) {
    return fallback;
  }
  const std::string expected = integer_kind(least) + ", or two of them as [height, width]";
  if (value->words.size() != (value->is_list ? 2 : 1)) {
    refuse(key, expected);
  }
  return {to_integer(key, value->words.front(), least, expected),
          to_integer(key, value->words.back(), least, expected)};
}

Extent LayerAttributes::required_extent(const std::string& key, std::int64_t least) {
  require(key, integer_kind(least) + ", or [height, width]");
  return extent(key, least, {});
}

Extent LayerAttributes::padding(const std::string& key, Extent kernel, Extent dilation) {
  const AttributeValue* value = find(key);
  if (value == nullptr || value->is_list || value->words[0] != "same") {
    return extent(key, 0, {0, 0});
  }
  const Extent whole = {(kernel.height - 1) * dilation.height, (kernel.width - 1) * dilation.width};
  if (whole.height % 2 != 0 || whole.width % 2 != 0) {
    refuse(key, "zeros on each side as a number, since the kernel is not odd");
  }
  return {whole.height / 2, whole.width / 2};
}

std::vector<std::int64_t> LayerAttributes::integers(const std::string& key, std::int64_t least,
                                                    std::size_t most_items) {
  const std::string expected = fmt::format("a list of 1 to {} integers", most_items);
  require(key, expected);
  const AttributeValue& value = *find(key);
  if (!value.is_list || value.words.empty() || value.words.size() > most_items) {
    refuse(key, expected);
  }
  std::vector<std::int64_t> numbers;
  for (const std::string& word : value.words) {
    numbers.push_back(to_integer(key, word, least, expected + fmt::format(" of {} or more", least)));
  }
  return numbers;
}

void LayerAttributes::expect_no_others(std::string_view type) const {
  std::vector<std::string_view> known(asked_.begin(), asked_.end());
  for (const auto& [key, value] : values_) {
    if (!asked_.contains(key)) {
      const std::string keys = known.empty() ? "" : fmt::format("{}, ", fmt::join(known, ", "));
      known.insert(known.end(), {"name", "inputs"});
      throw FileError(fmt::format("{}: key {} of layer '{}': {} has no such key, only {}name and inputs{}",
                                  file_place(file_, value.line), quoted(key), layer_, type, keys,
                                  did_you_mean(key.substr(0, 60), known)));
    }
  }
}

}  // namespace distbelief
