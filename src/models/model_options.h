#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace distbelief {

/// One thing that a model lets its user choose.
struct ModelOption {
  std::string name;
  std::string default_value;
  std::string meaning;
};

/// What a user chose, over a model's defaults. Every method throws InputError that names model, option and what was
/// expected.
class ModelOptions {
 public:
  /// Refuses options that the model does not have.
  ModelOptions(std::string model, const std::vector<ModelOption>& offered,
               const std::map<std::string, std::string>& chosen);

  const std::string& model() const { return model_; }
  std::int64_t integer(const std::string& name, std::int64_t least = 1) const;
  double number(const std::string& name, double least, double most) const;
  bool flag(const std::string& name) const;
  /// Integers of 1 or more, with commas between: "512,512". None when the value is empty.
  std::vector<std::int64_t> integers(const std::string& name) const;
  /// One of `words`.
  std::string word(const std::string& name, const std::vector<std::string_view>& words) const;
  const std::string& text(const std::string& name) const;

 private:
  [[noreturn]] void refuse(const std::string& name, const std::string& expected) const;

  std::string model_;
  std::map<std::string, std::string> values_;
};

}  // namespace distbelief
