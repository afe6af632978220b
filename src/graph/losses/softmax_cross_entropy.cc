#include "graph/losses/softmax_cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/parallel.h"

namespace distbelief {

void expect_score_per_class(std::string_view loss, const Shape& prediction, std::int64_t classes) {
  if (classes <= 0) {
    throw ShapeError(fmt::format("loss {} needs data with classes, this data has none", loss));
  }
  if (prediction.rank() != 2 || prediction[1] != classes) {
    throw ShapeError(fmt::format("loss {} needs one score for each of {} classes, the model's output is {}", loss,
                                 classes, prediction.text()));
  }
}

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
  std::vector<double> losses(static_cast<std::size_t>(rows));
  std::vector<char> right(static_cast<std::size_t>(rows));
  parallel_for(rows, std::max<std::int64_t>(1, 4096 / columns), [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> own(gradient == nullptr ? static_cast<std::size_t>(columns) : 0);
    for (std::int64_t r = begin; r < end; ++r) {
      const float* scores = prediction + r * columns;
      float* out = gradient == nullptr ? own.data() : gradient + r * columns;
      const auto row = static_cast<std::size_t>(r);
      const std::int32_t label = targets.classes[row];
      losses[row] = softmax_row(scores, columns, out) - scores[label];
      right[row] = std::max_element(scores, scores + columns) - scores == label ? 1 : 0;
      if (gradient != nullptr) {
        out[label] -= 1.0F;
      }
    }
  });
  LossSums sums;
  sums.rows = rows;
  for (std::size_t r = 0; r < losses.size(); ++r) {
    sums.loss += losses[r];
    sums.correct += right[r];
  }
  return sums;
}

void SoftmaxCrossEntropy::to_probabilities(std::span<float> row) const {
  softmax_row(row.data(), static_cast<std::int64_t>(row.size()), row.data());
}

}  // namespace distbelief
