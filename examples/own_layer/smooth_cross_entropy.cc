#include "smooth_cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"

using namespace distbelief;

void SmoothCrossEntropy::check_fit(const Shape& prediction, std::int64_t classes, std::int64_t /*targets*/) const {
  if (prediction.rank() != 2 || prediction[1] != classes) {
    throw ShapeError("smooth_cross_entropy: expected " + std::to_string(classes) + " outputs, got " +
                     prediction.text());
  }
}

void SmoothCrossEntropy::to_probabilities(std::span<float> row) const {
  const float largest = *std::max_element(row.begin(), row.end());
  float sum = 0;
  for (float& value : row) {
    value = std::exp(value - largest);
    sum += value;
  }
  for (float& value : row) {
    value /= sum;
  }
}

LossSums SmoothCrossEntropy::evaluate(const float* prediction, std::int64_t rows, std::int64_t columns,
                                      const Targets& targets, float* gradient) const {
  LossSums sums;
  std::vector<float> probabilities(static_cast<std::size_t>(columns));
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t right = targets.classes[static_cast<std::size_t>(row)];
    std::copy_n(prediction + row * columns, columns, probabilities.begin());
    to_probabilities(probabilities);
    for (std::int64_t column = 0; column < columns; ++column) {
      const float probability = probabilities[static_cast<std::size_t>(column)];
      const float target = smoothing_ / static_cast<float>(columns) + (column == right ? 1 - smoothing_ : 0);
      sums.loss -= target * std::log(std::max(probability, 1e-30F));
      if (gradient != nullptr) {
        gradient[row * columns + column] = probability - target;
      }
    }
    const auto best = std::max_element(probabilities.begin(), probabilities.end()) - probabilities.begin();
    sums.correct += best == right ? 1 : 0;
  }
  sums.rows = rows;
  return sums;
}
