#pragma once

#include "graph/loss.h"

namespace distbelief {

/// −log of the probability that softmax(prediction) gives to the right class.
class SoftmaxCrossEntropy : public Loss {
 public:
  std::string_view type() const override { return "softmax_cross_entropy"; }
  bool wants_classes() const override { return true; }
  void check_fit(const Shape& prediction, std::int64_t classes, std::int64_t targets) const override;
  LossSums evaluate(const float* prediction, std::int64_t rows, std::int64_t columns, const Targets& targets,
                    float* gradient) const override;
  void to_probabilities(std::span<float> row) const override;
};

/// softmax of a row in place of `out`; returns log of the sum of exponentials, with the maximum in it.
double softmax_row(const float* scores, std::int64_t count, float* out);

}  // namespace distbelief
