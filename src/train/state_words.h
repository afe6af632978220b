#pragma once

#include <fmt/format.h>

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "graph/loss.h"
#include "params/state_visitor.h"

namespace distbelief {

/// Kinds of state that StateVisitor has no word for.

inline void visit_integer(StateVisitor& visitor, std::string_view name, std::int64_t& value) {
  auto bits = static_cast<std::uint64_t>(value);
  visitor.number(name, bits);
  value = static_cast<std::int64_t>(bits);
}

inline void visit_sums(StateVisitor& visitor, LossSums& sums) {
  visitor.real("loss", sums.loss);
  visit_integer(visitor, "correct", sums.correct);
  visit_integer(visitor, "rows", sums.rows);
}

/// Throws FileError when what is read is shorter than it says.
inline void visit_text(StateVisitor& visitor, std::string_view name, std::string& text) {
  std::vector<std::uint64_t> words((text.size() + 7) / 8 + 1);
  words[0] = text.size();
  std::memcpy(words.data() + 1, text.data(), text.size());
  visitor.numbers(name, words);
  if (words.empty() || words[0] > (words.size() - 1) * 8) {
    throw FileError(fmt::format("the state of the run is damaged: '{}' is shorter than it says", name));
  }
  text.assign(reinterpret_cast<const char*>(words.data() + 1), words[0]);
}

}  // namespace distbelief
