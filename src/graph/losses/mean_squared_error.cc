#include "graph/losses/mean_squared_error.h"

#include "graph/losses/class_scores.h"

namespace distbelief {

void MeanSquaredError::check_fit(const Shape& prediction, std::int64_t /*classes*/, std::int64_t targets) const {
  expect_output_per_target(type(), prediction, targets);
}

LossSums MeanSquaredError::evaluate(const float* prediction, std::int64_t rows, std::int64_t columns,
                                    const Targets& targets, float* gradient) const {
  const float slope = 2.0F / static_cast<float>(columns);
  return sum_over_rows(rows, columns, [&](std::int64_t r) {
    RowLoss result;
    for (std::int64_t c = r * columns; c < (r + 1) * columns; ++c) {
      const float error = prediction[c] - targets.values[static_cast<std::size_t>(c)];
      result.loss += static_cast<double>(error) * error;
      if (gradient != nullptr) {
        gradient[c] = slope * error;
      }
    }
    result.loss /= static_cast<double>(columns);
    return result;
  });
}

}  // namespace distbelief
