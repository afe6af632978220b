#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "graph/layers/window.h"
#include "tensor/batch.h"

namespace distbelief {

/// What is written behind a key: one word or a list of words, and where.
struct AttributeValue {
  std::vector<std::string> words;  ///< exactly one unless is_list
  bool is_list = false;
  int line = 0;  ///< 0: unknown
};

/// Largest integer that an attribute may be: products of two still fit 64 bits.
constexpr std::int64_t kMaxAttribute = 0x7fffffff;

/// The attributes of one layer as a file gives them. A getter returns the default when the key is not there, and
/// throws FileError `file:line: key 'x' of layer 'y': expected ..., got ...` when its value is of another kind. Keys
/// that nobody asked for are unknown: expect_no_others(). One thread.
class LayerAttributes {
 public:
  LayerAttributes(std::string file, int line, std::string layer, std::map<std::string, AttributeValue> values,
                  const SampleSpec& data);

  const std::string& layer() const { return layer_; }
  bool has(const std::string& key) const { return values_.contains(key); }

  /// In [least, kMaxAttribute].
  std::int64_t integer(const std::string& key, std::int64_t least, std::int64_t fallback);
  std::int64_t required_integer(const std::string& key, std::int64_t least);
  /// An integer, or `classes` or `targets` for as many as the data has; required.
  std::int64_t outputs(const std::string& key);
  float number(const std::string& key, float least, float most, float fallback);
  bool flag(const std::string& key, bool fallback);
  std::string word(const std::string& key, const std::vector<std::string_view>& words, const std::string& fallback);
  /// One integer for both, or [height, width].
  Extent extent(const std::string& key, std::int64_t least, Extent fallback);
  Extent required_extent(const std::string& key, std::int64_t least);
  /// An extent, or `same`: the output is as large as the input, when the stride is 1.
  Extent padding(const std::string& key, Extent kernel, Extent dilation);
  /// Integers in a list.
  std::vector<std::int64_t> integers(const std::string& key, std::int64_t least, std::size_t most_items);

  /// Throws FileError when the key is not there, naming the one that was most likely meant to be it.
  void require(const std::string& key, const std::string& expected);
  /// Throws FileError with the nearest key there is for a key that no getter asked for.
  void expect_no_others(std::string_view type) const;
  /// Throws FileError about a key's value, which must be there.
  [[noreturn]] void refuse(const std::string& key, const std::string& expected) const;

 private:
  const AttributeValue* find(const std::string& key);
  std::int64_t to_integer(const std::string& key, const std::string& word, std::int64_t least,
                          const std::string& expected) const;

  std::string file_;
  int line_;
  std::string layer_;
  std::map<std::string, AttributeValue> values_;
  SampleSpec data_;
  std::set<std::string> asked_;
};

/// A text without line breaks and other control characters, for use in a message.
std::string one_line(std::string text);
/// The same for words of a user's file, in quotes, and not too long.
std::string quoted(const std::string& text);
/// "file:line", or "file" when the line is not known.
std::string file_place(const std::string& file, int line);

}  // namespace distbelief
