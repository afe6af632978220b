#pragma once

#include "graph/layer.h"

namespace distbelief {

struct BatchNormOptions {
  float epsilon = 1e-5F;
  float momentum = 0.1F;    ///< how fast the running statistics follow the batches'
  bool relu = false;        ///< followed by a ReLU, in one pass
  bool zero_scale = false;  ///< begin with a scale of 0: what comes before is silent at first
};

/// Normalises each channel over the batch it is given (a ghost batch, when a replica cuts its batch), then scales and
/// shifts. The running mean and (unbiased) variance are parameters of the averaged kind and serve inference.
class BatchNorm : public Layer {
 public:
  /// Places in parameters().
  enum Parameter : std::size_t { kScale, kShift, kMean, kVariance };

  explicit BatchNorm(BatchNormOptions options = {}) : options_(options) {}
  std::string_view type() const override { return "batch_norm"; }
  ValueSpec output(ValueSpecs inputs) const override;
  std::vector<ParameterSpec> parameters(ValueSpecs inputs) const override;
  std::int64_t flops(ValueSpecs inputs) const override;
  bool accepts_any_layout() const override { return true; }
  /// By region statistics are put together: see exchanges/shared_batch_norm.h.
  std::vector<Cut> cuts(ValueSpecs inputs) const override { return cuts_of_elements(inputs[0].shape); }
  LayerPart part(Cut cut, ValueSpecs inputs, const Slice& slice) const override;
  LayerPtr fused_with(const Layer& next) const override;
  std::unique_ptr<Kernel> compile(const Engine& engine, ValueLayouts inputs, Purpose purpose) const override;

 private:
  BatchNormOptions options_;
};

}  // namespace distbelief
