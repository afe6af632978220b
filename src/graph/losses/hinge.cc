#include "graph/losses/hinge.h"

#include <algorithm>

#include "graph/losses/class_scores.h"

namespace distbelief {

void Hinge::check_fit(const Shape& prediction, std::int64_t classes, std::int64_t /*targets*/) const {
  expect_score_per_class_or_one(type(), prediction, classes);
}

LossSums Hinge::evaluate(const float* prediction, std::int64_t rows, std::int64_t columns, const Targets& targets,
                         float* gradient) const {
  return sum_over_rows(rows, columns, [&](std::int64_t r) {
    const float* scores = prediction + r * columns;
    const std::int32_t label = targets.classes[static_cast<std::size_t>(r)];
    RowLoss result;
    for (std::int64_t c = 0; c < columns; ++c) {
      const bool yes = columns == 1 ? label == 1 : label == c;
      const float sign = yes ? 1.0F : -1.0F;
      const float margin = 1.0F - sign * scores[c];
      result.loss += std::max(0.0F, margin);
      if (gradient != nullptr) {
        gradient[r * columns + c] = margin > 0 ? -sign : 0.0F;
      }
    }
    result.right =
        columns == 1 ? (scores[0] > 0) == (label == 1) : std::max_element(scores, scores + columns) - scores == label;
    return result;
  });
}

}  // namespace distbelief
