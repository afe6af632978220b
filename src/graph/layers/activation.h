#pragma once

#include "graph/layer.h"

namespace distbelief {

/// A smooth function of each element. GELU is x·Φ(x), exact, or with Φ's tanh approximation (gelu_tanh).
class Activation : public Layer {
 public:
  enum class Kind { sigmoid, tanh, gelu, gelu_tanh };
  explicit Activation(Kind kind) : kind_(kind) {}
  std::string_view type() const override;
  ValueSpec output(ValueSpecs inputs) const override;
  bool accepts_any_layout() const override { return true; }
  std::vector<Cut> cuts(ValueSpecs inputs) const override { return cuts_of_elements(inputs[0].shape); }
  std::unique_ptr<Kernel> compile(const Engine& engine, ValueLayouts inputs, Purpose purpose) const override;

 private:
  Kind kind_;
};

/// exp(x) / Σ exp(x) over the last dimension. For a classifier's end use the softmax_cross_entropy loss instead.
class Softmax : public Layer {
 public:
  std::string_view type() const override { return "softmax"; }
  ValueSpec output(ValueSpecs inputs) const override;
  std::unique_ptr<Kernel> compile(const Engine& engine, ValueLayouts inputs, Purpose purpose) const override;
};

}  // namespace distbelief
