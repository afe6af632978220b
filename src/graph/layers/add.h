#pragma once

#include "graph/layer.h"

namespace distbelief {

/// The sum of two or more values of one shape: where a shortcut meets its block.
class Add : public Layer {
 public:
  explicit Add(bool relu = false) : relu_(relu) {}
  std::string_view type() const override { return "add"; }
  ValueSpec output(ValueSpecs inputs) const override;
  bool accepts_any_layout() const override { return true; }
  LayerPtr fused_with(const Layer& next) const override;
  std::vector<Cut> cuts(ValueSpecs inputs) const override { return cuts_of_elements(inputs[0].shape); }
  std::unique_ptr<Kernel> compile(const Engine& engine, ValueLayouts inputs, Purpose purpose) const override;

 private:
  bool relu_;  ///< followed by a ReLU, in one pass
};

}  // namespace distbelief
