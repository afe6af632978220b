#pragma once

#include "graph/layer.h"

namespace distbelief {

struct DenseOptions {
  std::int64_t units = 0;
  bool bias = true;
  bool relu = false;  ///< followed by a ReLU, in one pass
  Slice columns = {};  ///< of sparse inputs, unless empty: the others are passed over, and have no weights here
  /// he for layers before a ReLU, glorot for sigmoid and tanh, small for the last layer.
  enum class Init { he, glorot, small } init = Init::he;
};

/// y = x Wᵀ + b on the last dimension. Dense inputs: W is [units, inputs]. Sparse inputs: W is [columns, units], so
/// that a row's non-zeros touch whole rows of W.
class Dense : public Layer {
 public:
  explicit Dense(DenseOptions options) : options_(options) {}
  std::string_view type() const override { return "dense"; }
  ValueSpec output(ValueSpecs inputs) const override;
  std::vector<ParameterSpec> parameters(ValueSpecs inputs) const override;
  std::int64_t flops(ValueSpecs inputs) const override;
  LayerPtr fused_with(const Layer& next) const override;
  std::unique_ptr<Kernel> compile(const Engine& engine, ValueLayouts inputs, Purpose purpose) const override;
  std::vector<Cut> cuts(ValueSpecs inputs) const override;
  LayerPart part(Cut cut, ValueSpecs inputs, const Slice& slice) const override;
  const DenseOptions& options() const { return options_; }

 private:
  DenseOptions options_;
};

}  // namespace distbelief
