#include "models/model_options.h"

#include <fmt/ranges.h>

#include <charconv>
#include <optional>

#include "base/check.h"
#include "base/error.h"
#include "base/nearest_name.h"

namespace distbelief {
namespace {

template <typename Number>
std::optional<Number> parse(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

}  // namespace

ModelOptions::ModelOptions(std::string model, const std::vector<ModelOption>& offered,
                           const std::map<std::string, std::string>& chosen)
    : model_(std::move(model)) {
  std::vector<std::string_view> names;
  for (const ModelOption& option : offered) {
    names.push_back(option.name);
    values_[option.name] = option.default_value;
  }
  for (const auto& [name, value] : chosen) {
    const auto found = values_.find(name);
    if (found == values_.end()) {
      const std::string known = names.empty() ? "it has no options" : fmt::format("it has {}", fmt::join(names, ", "));
      throw InputError(fmt::format("model {}: no option '{}' ({}){}", model_, name, known, did_you_mean(name, names)));
    }
    found->second = value;
  }
}

const std::string& ModelOptions::text(const std::string& name) const {
  const auto found = values_.find(name);
  check(found != values_.end(), "a model reads only options that it offers");
  return found->second;
}

void ModelOptions::refuse(const std::string& name, const std::string& expected) const {
  throw InputError(fmt::format("model {}: option '{}': expected {}, got '{}'", model_, name, expected, text(name)));
}

std::int64_t ModelOptions::integer(const std::string& name, std::int64_t least) const {
  const auto value = parse<std::int64_t>(text(name));
  if (!value || *value < least) {
    refuse(name, fmt::format("an integer of {} or more", least));
  }
  return *value;
}

double ModelOptions::number(const std::string& name, double least, double most) const {
  const auto value = parse<double>(text(name));
  if (!value || !(*value >= least && *value <= most)) {
    refuse(name, fmt::format("a number from {} to {}", least, most));
  }
  return *value;
}

bool ModelOptions::flag(const std::string& name) const {
  const std::string& value = text(name);
  if (value != "true" && value != "false") {
    refuse(name, "true or false");
  }
  return value == "true";
}

std::vector<std::int64_t> ModelOptions::integers(const std::string& name) const {
  std::vector<std::int64_t> values;
  std::string_view rest = text(name);
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    const auto value = parse<std::int64_t>(rest.substr(0, comma));
    if (!value || *value < 1 || comma + 1 == rest.size()) {
      refuse(name, "integers of 1 or more with commas between");
    }
    values.push_back(*value);
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
  }
  return values;
}

std::string ModelOptions::word(const std::string& name, const std::vector<std::string_view>& words) const {
  const std::string& value = text(name);
  for (const std::string_view word : words) {
    if (word == value) {
      return value;
    }
  }
  refuse(name, fmt::format("one of {}", fmt::join(words, ", ")) + did_you_mean(value, words));
}

}  // namespace distbelief
