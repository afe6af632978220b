#pragma once

#include "graph/loss.h"

namespace distbelief {

/// The mean over a row's outputs of (prediction − target)², for float targets.
class MeanSquaredError : public Loss {
 public:
  std::string_view type() const override { return "mean_squared_error"; }
  bool wants_classes() const override { return false; }
  void check_fit(const Shape& prediction, std::int64_t classes, std::int64_t targets) const override;
  LossSums evaluate(const float* prediction, std::int64_t rows, std::int64_t columns, const Targets& targets,
                    float* gradient) const override;
  void to_probabilities(std::span<float> /*row*/) const override {}
};

}  // namespace distbelief
