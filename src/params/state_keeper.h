#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "params/state_visitor.h"

namespace distbelief {

/// For tests: keeps what a walk over state shows, or gives back what it kept.
class StateKeeper : public StateVisitor {
 public:
  void floats(std::string_view name, std::span<float> values) override {
    std::vector<float>& kept = floats_[std::string(name)];
    if (gives_back) {
      std::ranges::copy(kept, values.begin());
    } else {
      kept.assign(values.begin(), values.end());
    }
  }
  void number(std::string_view name, std::uint64_t& value) override {
    std::vector<std::uint64_t> one = {value};
    numbers(name, one);
    value = one[0];
  }
  void numbers(std::string_view name, std::vector<std::uint64_t>& values) override {
    std::vector<std::uint64_t>& kept = numbers_[std::string(name)];
    (gives_back ? values : kept) = gives_back ? kept : values;
  }
  bool gives_back = false;

 private:
  std::map<std::string, std::vector<float>> floats_;
  std::map<std::string, std::vector<std::uint64_t>> numbers_;
};

}  // namespace distbelief
