#pragma once

#include "graph/loss.h"

/// Cross-entropy against a softened target: 1 - smoothing for the class, the rest spread evenly over all classes
/// (Szegedy et al. 2016).
class SmoothCrossEntropy : public distbelief::Loss {
 public:
  explicit SmoothCrossEntropy(float smoothing) : smoothing_(smoothing) {}
  std::string_view type() const override { return "smooth_cross_entropy"; }
  bool wants_classes() const override { return true; }
  void check_fit(const distbelief::Shape& prediction, std::int64_t classes, std::int64_t targets) const override;
  distbelief::LossSums evaluate(const float* prediction, std::int64_t rows, std::int64_t columns,
                                const distbelief::Targets& targets, float* gradient) const override;
  void to_probabilities(std::span<float> row) const override;

 private:
  const float smoothing_;
};
