#include "train/state_arrays.h"

#include <algorithm>

#include "base/error.h"

namespace distbelief {

std::vector<FloatArray> named_arrays(const ParameterTable& table, std::span<const float> values,
                                     const std::string& prefix) {
  std::vector<FloatArray> arrays;
  for (const ParameterEntry& entry : table.entries()) {
    arrays.push_back(
        {prefix + entry.name, entry.shape,
         values.subspan(static_cast<std::size_t>(entry.range.begin), static_cast<std::size_t>(entry.range.size()))});
  }
  return arrays;
}

void read_named_arrays(const ParameterTable& table, const SafetensorsView& file, const std::string& prefix,
                       std::span<float> values) {
  std::fill(values.begin(), values.end(), 0.0F);
  for (const ParameterEntry& entry : table.entries()) {
    file.read(
        file.expect(prefix + entry.name, entry.shape),
        values.subspan(static_cast<std::size_t>(entry.range.begin), static_cast<std::size_t>(entry.range.size())));
  }
}

void StateSaver::floats(std::string_view name, std::span<float> values) {
  for (FloatArray& array : named_arrays(table_, values, std::string(name) + "/")) {
    arrays_.push_back(std::move(array));
  }
}

void StateLoader::floats(std::string_view name, std::span<float> values) {
  read_named_arrays(table_, arrays_, std::string(name) + "/", values);
}

const std::vector<std::uint64_t>& StateLoader::find(std::string_view name) const {
  const auto found = numbers_.find(std::string(name));
  if (found == numbers_.end()) {
    throw FileError(
        fmt::format("{}: the checkpoint holds no '{}'; was it written with another optimizer?", arrays_.file(), name));
  }
  return found->second;
}

void StateLoader::number(std::string_view name, std::uint64_t& value) {
  const auto& numbers = find(name);
  if (numbers.size() != 1) {
    throw FileError(fmt::format("{}: '{}' should be one number", arrays_.file(), name));
  }
  value = numbers[0];
}

void StateLoader::numbers(std::string_view name, std::vector<std::uint64_t>& values) { values = find(name); }

}  // namespace distbelief
