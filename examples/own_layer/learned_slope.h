#pragma once

#include "graph/layer.h"

/// Like ReLU, but what is below 0 is multiplied by a learned slope, one for each feature (He et al. 2015, "PReLU"). The
/// input is rows of features. Begins as a plain ReLU.
class LearnedSlope : public distbelief::Layer {
 public:
  std::string_view type() const override { return "learned_slope"; }
  distbelief::ValueSpec output(distbelief::ValueSpecs inputs) const override;
  std::vector<distbelief::ParameterSpec> parameters(distbelief::ValueSpecs inputs) const override;
  std::unique_ptr<distbelief::Kernel> compile(const distbelief::Engine& engine, distbelief::ValueLayouts inputs,
                                              distbelief::Purpose purpose) const override;
};
