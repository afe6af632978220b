#pragma once

#include "graph/layer.h"

namespace distbelief {

struct LocalResponseNormOptions {
  std::int64_t size = 5;  ///< channels in the window: size / 2 before, (size − 1) / 2 after
  float alpha = 1e-4F;
  float beta = 0.75F;
  float k = 1.0F;
};

/// x / (k + alpha / size · Σ x²)^beta, the sum over neighbouring channels of the same pixel (Krizhevsky et al. 2012,
/// with alpha divided by the size as in ONNX).
class LocalResponseNorm : public Layer {
 public:
  /// Throws InputError for a size below 1 or a k that is not positive.
  explicit LocalResponseNorm(LocalResponseNormOptions options = {});
  std::string_view type() const override { return "local_response_norm"; }
  ValueSpec output(ValueSpecs inputs) const override;
  std::int64_t flops(ValueSpecs inputs) const override;
  std::vector<Cut> cuts(ValueSpecs /*inputs*/) const override { return {Cut::region}; }
  std::unique_ptr<Kernel> compile(const Engine& engine, ValueLayouts inputs, Purpose purpose) const override;

 private:
  LocalResponseNormOptions options_;
};

}  // namespace distbelief
