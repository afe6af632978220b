#include "graph/losses/sigmoid_cross_entropy.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "graph/losses/class_scores.h"

namespace distbelief {

std::string_view SigmoidCrossEntropy::type() const {
  return against_ == Against::classes ? "sigmoid_cross_entropy" : "binary_cross_entropy";
}

void SigmoidCrossEntropy::check_fit(const Shape& prediction, std::int64_t classes, std::int64_t targets) const {
  if (against_ == Against::classes) {
    expect_score_per_class_or_one(type(), prediction, classes);
  } else {
    expect_output_per_target(type(), prediction, targets);
  }
}

LossSums SigmoidCrossEntropy::evaluate(const float* prediction, std::int64_t rows, std::int64_t columns,
                                       const Targets& targets, float* gradient) const {
  const bool one_score = columns == 1;
  return sum_over_rows(rows, columns, [&](std::int64_t r) {
    RowLoss result;
    const float* scores = prediction + r * columns;
    const auto row = static_cast<std::size_t>(r);
    const float* wanted = against_ == Against::values ? targets.values.data() + r * columns : nullptr;
    const std::int32_t label = wanted == nullptr ? targets.classes[row] : 0;
    result.right = true;
    for (std::int64_t c = 0; c < columns; ++c) {
      const float target = wanted != nullptr ? wanted[c] : static_cast<float>(one_score ? label : label == c);
      // log(1 + e^s) − t·s, with an exponential that cannot overflow.
      const float score = scores[c];
      const float small = std::exp(-std::abs(score));
      result.loss += std::max(score, 0.0F) - target * score + std::log1p(small);
      if (gradient != nullptr) {
        gradient[r * columns + c] = (score >= 0 ? 1.0F : small) / (1.0F + small) - target;
      }
      result.right = result.right && (score > 0) == (target > 0.5F);
    }
    if (wanted == nullptr && !one_score) {
      result.right = std::max_element(scores, scores + columns) - scores == label;
    }
    return result;
  });
}

void SigmoidCrossEntropy::to_probabilities(std::span<float> row) const {
  for (float& score : row) {
    score = 1.0F / (1.0F + std::exp(-score));
  }
}

}  // namespace distbelief
