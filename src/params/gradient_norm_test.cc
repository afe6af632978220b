#include "params/gradient_norm.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

namespace distbelief {
namespace {

TEST(GradientNorm, IsOfTheSumOfPartsWithoutWhatIsFrozenOrAveraged) {
  ParameterTable table;
  table.add("a", {.name = "a", .shape = {3000}, .init = {}});
  table.add("b", {.name = "b", .shape = {2}, .init = {}});
  table.add("mean", {.name = "mean", .shape = {2}, .init = {}, .kind = ParameterKind::averaged});
  table.freeze("b");
  const auto size = static_cast<std::size_t>(table.size());
  const std::vector<float> ones(size, 1.0F), twos(size, 2.0F), fours(size, 4.0F);
  const std::array<std::span<const float>, 3> parts = {ones, twos, fours};
  EXPECT_DOUBLE_EQ(gradient_norm(table, parts), 7 * std::sqrt(3000.0));
  EXPECT_DOUBLE_EQ(gradient_norm(table, std::span(parts).first(1)), std::sqrt(3000.0));
}

}  // namespace
}  // namespace distbelief
