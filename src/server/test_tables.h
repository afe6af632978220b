#pragma once

#include <chrono>

#include "base/test_deadline.h"
#include "params/parameter_table.h"

namespace distbelief {

/// For tests: how long what must happen may take.
constexpr std::chrono::seconds kPatience{60};

/// For tests: two layers and statistics.
inline ParameterTable small_table() {
  ParameterTable table;
  table.add("a.weight", {.name = "weight", .shape = {300, 40}, .init = {}});
  table.add("b.weight", {.name = "weight", .shape = {77}, .init = {}});
  table.add("bn.mean", {.name = "mean", .shape = {50}, .init = {}, .kind = ParameterKind::averaged});
  return table;
}

}  // namespace distbelief
