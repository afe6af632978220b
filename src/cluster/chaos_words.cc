#include "cluster/chaos_words.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "base/error.h"

namespace distbelief {
namespace {

constexpr std::size_t kMostShown = 40;
constexpr double kLongestSeconds = 1e6;  // eleven days; and far from what a clock overflows at

/// What the user wrote, fit for one line of a message.
std::string shown(std::string_view word) {
  std::string text(word.substr(0, kMostShown));
  for (char& letter : text) {
    if (static_cast<unsigned char>(letter) < 0x20 || letter == '\x7F') {
      letter = '?';
    }
  }
  return word.size() > kMostShown ? text + "..." : text;
}

}  // namespace

void ChaosWords::fail(const std::string& expected, std::string_view more) const {
  const Word word = peek();
  throw InputError(fmt::format("column {}: expected {}, got {}{}", word.column, expected,
                               done() ? "the end" : fmt::format("'{}'", shown(word.text)), more));
}

ChaosWords::Word ChaosWords::take() {
  const Word word = peek();
  next_ += done() ? 0 : 1;
  return word;
}

bool ChaosWords::take_if(std::string_view word) {
  if (done() || peek().text != word) {
    return false;
  }
  ++next_;
  return true;
}

void ChaosWords::expect(std::string_view word) {
  if (!take_if(word)) {
    fail(fmt::format("'{}'", word));
  }
}

std::int64_t ChaosWords::number(std::int64_t least, std::int64_t most, const std::string& what) {
  const std::string_view text = peek().text;
  std::int64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (done() || error != std::errc() || stop != text.data() + text.size() || value < least || value > most) {
    fail(what);
  }
  ++next_;
  return value;
}

double ChaosWords::decimal(std::string_view digits, const std::string& expected) const {
  double value = 0;
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (digits.empty() || error != std::errc() || stop != digits.data() + digits.size() || !std::isfinite(value)) {
    fail(expected);
  }
  return value;
}

std::chrono::microseconds ChaosWords::duration() {
  const std::string expected = "a time such as 10ms, 2s or 1m";
  std::string_view text = peek().text;
  double unit = 0;
  if (text.ends_with("ms")) {
    unit = 1e-3;
    text.remove_suffix(2);
  } else if (text.ends_with("s") || text.ends_with("m")) {
    unit = text.ends_with("s") ? 1 : 60;
    text.remove_suffix(1);
  } else {
    fail(expected);
  }
  const double seconds = decimal(text, expected) * unit;
  if (seconds <= 0 || seconds > kLongestSeconds) {
    fail(expected);
  }
  ++next_;
  return std::chrono::microseconds(std::llround(seconds * 1e6));
}

double ChaosWords::factor() {
  const std::string expected = "how many times as slow, such as x5";
  std::string_view text = peek().text;
  if (!text.starts_with('x')) {
    fail(expected);
  }
  text.remove_prefix(1);
  const double value = decimal(text, expected);
  if (value < 1 || value > 1e6) {
    fail("a factor from x1 to x1000000");
  }
  ++next_;
  return value;
}

double ChaosWords::percentage(const std::string& what) {
  std::string_view text = peek().text;
  if (!text.ends_with('%')) {
    fail(what);
  }
  text.remove_suffix(1);
  const double value = decimal(text, what);
  if (value <= 0 || value > 100) {
    fail("more than 0% and at most 100%");
  }
  ++next_;
  return value / 100;
}

}  // namespace distbelief
