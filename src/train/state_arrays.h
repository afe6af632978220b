#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "params/parameter_table.h"
#include "params/state_visitor.h"

namespace distbelief {

/// The parameters of a flat space as named arrays; borrows both.
std::vector<FloatArray> named_arrays(const ParameterTable& table, std::span<const float> values,
                                     const std::string& prefix = "");

/// Fills the flat space from a file that must have every parameter. Throws FileError naming what is missing or
/// misshapen.
void read_named_arrays(const ParameterTable& table, const SafetensorsView& file, const std::string& prefix,
                       std::span<float> values);

/// Takes a strategy's state apart for a checkpoint: slots as "slot/parameter" arrays, numbers as JSON text.
class StateSaver : public StateVisitor {
 public:
  explicit StateSaver(const ParameterTable& table) : table_(table) {}
  void floats(std::string_view name, std::span<float> values) override;
  void number(std::string_view name, std::uint64_t& value) override { numbers_[std::string(name)] = {value}; }
  void numbers(std::string_view name, std::vector<std::uint64_t>& values) override {
    numbers_[std::string(name)] = values;
  }
  const std::vector<FloatArray>& arrays() const { return arrays_; }
  const std::map<std::string, std::vector<std::uint64_t>>& all_numbers() const { return numbers_; }

 private:
  const ParameterTable& table_;
  std::vector<FloatArray> arrays_;
  std::map<std::string, std::vector<std::uint64_t>> numbers_;
};

/// Puts it back. Throws FileError when the checkpoint lacks something that the strategy asks for.
class StateLoader : public StateVisitor {
 public:
  StateLoader(const ParameterTable& table, const SafetensorsView& arrays,
              const std::map<std::string, std::vector<std::uint64_t>>& numbers)
      : table_(table), arrays_(arrays), numbers_(numbers) {}
  void floats(std::string_view name, std::span<float> values) override;
  void number(std::string_view name, std::uint64_t& value) override;
  void numbers(std::string_view name, std::vector<std::uint64_t>& values) override;

 private:
  const std::vector<std::uint64_t>& find(std::string_view name) const;

  const ParameterTable& table_;
  const SafetensorsView& arrays_;
  const std::map<std::string, std::vector<std::uint64_t>>& numbers_;
};

}  // namespace distbelief
