#pragma once

#include "graph/loss.h"

namespace distbelief {

/// Σ max(0, 1 − t·s) over a row's scores s, with t = +1 for the right class and −1 for the others: support vector
/// machines, one against all. For two classes a single score is enough: positive means class 1.
class Hinge : public Loss {
 public:
  std::string_view type() const override { return "hinge"; }
  bool wants_classes() const override { return true; }
  void check_fit(const Shape& prediction, std::int64_t classes, std::int64_t targets) const override;
  LossSums evaluate(const float* prediction, std::int64_t rows, std::int64_t columns, const Targets& targets,
                    float* gradient) const override;
  /// Scores are no probabilities: leaves the row.
  void to_probabilities(std::span<float> /*row*/) const override {}
};

}  // namespace distbelief
