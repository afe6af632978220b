#include "graph/losses/softmax_cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "graph/losses/class_scores.h"

namespace distbelief {

double softmax_row(const float* scores, std::int64_t count, float* out) {
  const float largest = *std::max_element(scores, scores + count);
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] = std::exp(scores[i] - largest);
    sum += out[i];
  }
  const auto inverse = static_cast<float>(1.0 / sum);
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] *= inverse;
  }
  return std::log(sum) + largest;
}

void SoftmaxCrossEntropy::check_fit(const Shape& prediction, std::int64_t classes, std::int64_t /*targets*/) const {
  expect_score_per_class(type(), prediction, classes);
}

LossSums SoftmaxCrossEntropy::evaluate(const float* prediction, std::int64_t rows, std::int64_t columns,
                                       const Targets& targets, float* gradient) const {
  std::vector<float> unwanted(gradient == nullptr ? static_cast<std::size_t>(rows * columns) : 0);
  return sum_over_rows(rows, columns, [&](std::int64_t r) {
    const float* scores = prediction + r * columns;
    float* out = (gradient == nullptr ? unwanted.data() : gradient) + r * columns;
    const std::int32_t label = targets.classes[static_cast<std::size_t>(r)];
    RowLoss result;
    result.loss = softmax_row(scores, columns, out) - scores[label];
    result.right = std::max_element(scores, scores + columns) - scores == label;
    out[label] -= 1.0F;
    return result;
  });
}

void SoftmaxCrossEntropy::to_probabilities(std::span<float> row) const {
  softmax_row(row.data(), static_cast<std::int64_t>(row.size()), row.data());
}

}  // namespace distbelief
