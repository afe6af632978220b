#pragma once

#include "graph/layer.h"

namespace distbelief {

/// max(0, x). Mostly fused into the layer before it, or into the max-pooling after it.
class Relu : public Layer {
 public:
  std::string_view type() const override { return "relu"; }
  ValueSpec output(ValueSpecs inputs) const override;
  bool accepts_any_layout() const override { return true; }
  LayerPtr fused_with(const Layer& next) const override;
  std::vector<Cut> cuts(ValueSpecs inputs) const override { return cuts_of_elements(inputs[0].shape); }
  std::unique_ptr<Kernel> compile(const Engine& engine, ValueLayouts inputs, Purpose purpose) const override;
};

}  // namespace distbelief
