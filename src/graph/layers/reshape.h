#pragma once

#include "graph/layer.h"

namespace distbelief {

/// The same numbers with another shape. One dimension may be -1: what is left over. An empty shape flattens.
class Reshape : public Layer {
 public:
  /// `sample` is the shape without batch.
  explicit Reshape(std::vector<std::int64_t> sample) : sample_(std::move(sample)) {}
  static LayerPtr flatten() { return std::make_shared<Reshape>(std::vector<std::int64_t>{}); }
  std::string_view type() const override { return sample_.empty() ? "flatten" : "reshape"; }
  ValueSpec output(ValueSpecs inputs) const override;
  std::int64_t flops(ValueSpecs /*inputs*/) const override { return 0; }
  std::vector<Cut> cuts(ValueSpecs inputs) const override;
  std::unique_ptr<Kernel> compile(const Engine& engine, ValueLayouts inputs, Purpose purpose) const override;

 private:
  std::vector<std::int64_t> sample_;
};

}  // namespace distbelief
