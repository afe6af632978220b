#pragma once

#include <string>
#include <string_view>

#include "params/state_visitor.h"

namespace distbelief {

/// State as bytes, in the order in which it is visited: what one writes, the other reads back.
class StateWriter : public StateVisitor {
 public:
  void floats(std::string_view name, std::span<float> values) override;
  void number(std::string_view name, std::uint64_t& value) override;
  void numbers(std::string_view name, std::vector<std::uint64_t>& values) override;
  std::string take() { return std::move(bytes_); }

 private:
  void begin(std::string_view name, std::uint64_t count);

  std::string bytes_;
};

/// Throws FileError, naming `source`, when the bytes are not what a StateWriter wrote of the same kind of state.
class StateReader : public StateVisitor {
 public:
  /// `bytes` are borrowed.
  StateReader(std::string_view bytes, std::string source) : bytes_(bytes), source_(std::move(source)) {}
  void floats(std::string_view name, std::span<float> values) override;
  void number(std::string_view name, std::uint64_t& value) override;
  void numbers(std::string_view name, std::vector<std::uint64_t>& values) override;
  void expect_end() const;
  bool at_end() const { return bytes_.empty(); }

 private:
  std::string_view take(std::uint64_t count);
  /// How many elements follow, of `bytes` bytes each.
  std::uint64_t begin(std::string_view name, std::uint64_t bytes);
  [[noreturn]] void fail(std::string_view complaint) const;

  std::string_view bytes_;
  const std::string source_;
};

}  // namespace distbelief
