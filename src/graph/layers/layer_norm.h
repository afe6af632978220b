#pragma once

#include "graph/layer.h"

namespace distbelief {

struct LayerNormOptions {
  int axes = 1;  ///< how many of the last dimensions are normalised together
  float epsilon = 1e-5F;
};

/// Brings the last dimension (or the last few) of each sample to mean 0 and variance 1, then scales and shifts each
/// element.
class LayerNorm : public Layer {
 public:
  explicit LayerNorm(LayerNormOptions options = {}) : options_(options) {}
  std::string_view type() const override { return "layer_norm"; }
  ValueSpec output(ValueSpecs inputs) const override;
  std::vector<ParameterSpec> parameters(ValueSpecs inputs) const override;
  std::int64_t flops(ValueSpecs inputs) const override;
  std::unique_ptr<Kernel> compile(const Engine& engine, ValueLayouts inputs, Purpose purpose) const override;

 private:
  LayerNormOptions options_;
};

}  // namespace distbelief
