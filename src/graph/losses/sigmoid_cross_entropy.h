#pragma once

#include "graph/loss.h"

namespace distbelief {

/// Each output is a yes or no of its own: −log of the probability that sigmoid(prediction) gives to the right answers,
/// summed over a row. With classes: one against all, or, for two classes, a single score for class 1. With float
/// targets: each in [0, 1].
class SigmoidCrossEntropy : public Loss {
 public:
  enum class Against { classes, values };
  explicit SigmoidCrossEntropy(Against against = Against::classes) : against_(against) {}
  std::string_view type() const override;
  bool wants_classes() const override { return against_ == Against::classes; }
  void check_fit(const Shape& prediction, std::int64_t classes, std::int64_t targets) const override;
  LossSums evaluate(const float* prediction, std::int64_t rows, std::int64_t columns, const Targets& targets,
                    float* gradient) const override;
  void to_probabilities(std::span<float> row) const override;

 private:
  Against against_;
};

}  // namespace distbelief
