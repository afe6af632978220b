#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace distbelief {

/// Walks over all that must survive a restart. One walk serves both ways: a writer reads what it is shown, a reader
/// overwrites it. Names are unique within one walk.
class StateVisitor {
 public:
  virtual ~StateVisitor() = default;
  /// Numbers of a fixed count, one for each place of a range of the flat space.
  virtual void floats(std::string_view name, std::span<float> values) = 0;
  virtual void number(std::string_view name, std::uint64_t& value) = 0;
  /// A number with a fraction, bit for bit.
  void real(std::string_view name, double& value) {
    auto bits = std::bit_cast<std::uint64_t>(value);
    number(name, bits);
    value = std::bit_cast<double>(bits);
  }
  /// A list whose length is state, too.
  virtual void numbers(std::string_view name, std::vector<std::uint64_t>& values) = 0;
};

}  // namespace distbelief
