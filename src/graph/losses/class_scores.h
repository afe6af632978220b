#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/parallel.h"
#include "graph/loss.h"

namespace distbelief {

// What losses share.

/// For losses over classes: throws ShapeError unless predictions are rows with one score for each class.
void expect_score_per_class(std::string_view loss, const Shape& prediction, std::int64_t classes);
/// The same, but for two classes a single score does as well.
void expect_score_per_class_or_one(std::string_view loss, const Shape& prediction, std::int64_t classes);
/// For losses over floats: throws ShapeError unless predictions have as many outputs as the data has targets.
void expect_output_per_target(std::string_view loss, const Shape& prediction, std::int64_t targets);

struct RowLoss {
  double loss = 0;
  bool right = false;
};

/// Calls row(r) for each row, on several threads, and adds up in order: equal bits for any number of threads.
template <typename Row>
LossSums sum_over_rows(std::int64_t rows, std::int64_t columns, const Row& row) {
  std::vector<RowLoss> results(static_cast<std::size_t>(rows));
  parallel_for(rows, std::max<std::int64_t>(1, 4096 / columns), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      results[static_cast<std::size_t>(r)] = row(r);
    }
  });
  LossSums sums;
  sums.rows = rows;
  for (const RowLoss& result : results) {
    sums.loss += result.loss;
    sums.correct += result.right ? 1 : 0;
  }
  return sums;
}

}  // namespace distbelief
