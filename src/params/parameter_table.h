#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/parameter_spec.h"
#include "tensor/shape.h"

namespace distbelief {

/// Places [begin, end) of the flat parameter space.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t size() const { return end - begin; }
  friend bool operator==(const Range&, const Range&) = default;
};

/// One parameter of a model: its name, with that of its layer in front, and its place.
struct ParameterEntry {
  std::string name;  ///< "conv1.weight"
  Range range;       ///< exactly shape.elements() floats
  Shape shape;
  ParameterSpec spec;
  bool frozen = false;
};

/// The flat, named parameter space of a model. Parameters that are optimized fill [0, optimized_size()) in order of
/// addition, averaged ones follow up to size(). Each begins at a multiple of kAlignment floats; the gaps between hold
/// zeros that nobody updates. Build it with add(), then share it; reading is thread-safe.
class ParameterTable {
 public:
  static constexpr std::int64_t kAlignment = 16;  ///< floats; 64 bytes

  /// Ranges of averaged parameters move while optimized ones are still being added. Throws InputError if the name is
  /// taken.
  void add(std::string name, ParameterSpec spec);
  /// Excludes from updates all that match the pattern ('*' any letters, '?' one). Returns how many match; throws
  /// InputError when none does.
  int freeze(std::string_view pattern);

  /// In order of addition.
  const std::vector<ParameterEntry>& entries() const { return entries_; }
  /// Null when there is none.
  const ParameterEntry* find(std::string_view name) const;
  /// Throws InputError, with the nearest name, when there is none.
  const ParameterEntry& at(std::string_view name) const;

  /// Floats of the space, with gaps; multiples of kAlignment.
  std::int64_t size() const { return optimized_size_ + averaged_size_; }
  std::int64_t optimized_size() const { return optimized_size_; }
  Range everything() const { return {0, size()}; }
  /// What people call the number of parameters: elements of the optimized ones, without gaps.
  std::int64_t parameter_count() const;

  /// Fills all size() values. A parameter's numbers depend on the seed, its name and its shape only, so that adding a
  /// layer changes no other.
  void initialize(std::uint64_t seed, std::span<float> values) const;
  /// The same only for the parameter of this name.
  void initialize(std::uint64_t seed, const ParameterEntry& entry, std::span<float> values) const;

  /// Equal for tables of the same names, shapes and kinds in the same order.
  std::uint64_t digest() const;

 private:
  std::vector<ParameterEntry> entries_;
  std::map<std::string, std::size_t, std::less<>> index_;
  std::int64_t optimized_size_ = 0;
  std::int64_t averaged_size_ = 0;
};

/// Whether the whole text matches a pattern in which '*' stands for any letters and '?' for one.
bool matches_pattern(std::string_view pattern, std::string_view text);

}  // namespace distbelief
