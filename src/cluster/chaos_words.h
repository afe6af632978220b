#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace distbelief {

/// The words of one event of a chaos script, read from left to right. What is not as expected throws InputError that
/// names the column, the word and what was expected.
class ChaosWords {
 public:
  struct Word {
    std::string_view text;
    std::size_t column = 1;
  };
  /// `end_column` is where the event ends.
  ChaosWords(std::vector<Word> words, std::size_t end_column) : words_(std::move(words)), end_column_(end_column) {}

  bool done() const { return next_ == words_.size(); }
  /// The next word, or an empty one at the end.
  Word peek() const { return done() ? Word{"", end_column_} : words_[next_]; }
  Word take();
  /// Takes the next word if it is this one.
  bool take_if(std::string_view word);
  void expect(std::string_view word);

  std::int64_t number(std::int64_t least, std::int64_t most, const std::string& what);
  /// "10ms", "1.5s", "2m".
  std::chrono::microseconds duration();
  /// "x5".
  double factor();
  /// "5%": a fraction. `what` says of what.
  double percentage(const std::string& what);

  /// The next word is not what was expected.
  [[noreturn]] void fail(const std::string& expected, std::string_view more = "") const;

 private:
  double decimal(std::string_view digits, const std::string& expected) const;

  std::vector<Word> words_;
  std::size_t end_column_;
  std::size_t next_ = 0;
};

}  // namespace distbelief
