#pragma once

#include "graph/layer.h"
#include "graph/layers/window.h"

namespace distbelief {

struct LocalContrastNormOptions {
  Extent kernel = {5, 5};  ///< odd sizes
  float floor = 0.01F;     ///< c: contrasts below it are not amplified
};

/// Subtractive, then divisive normalisation over a window across space and all channels (Jarrett et al. 2009;
/// DistBelief's image network). With mean(·) over the pixels of the window that lie in the image, and over all
/// channels:
///   y = x − mean(x),   output = y / max(c, sqrt(mean(y²))).
class LocalContrastNorm : public Layer {
 public:
  /// Throws InputError for an even or missing kernel or a floor that is not positive.
  explicit LocalContrastNorm(LocalContrastNormOptions options = {});
  std::string_view type() const override { return "local_contrast_norm"; }
  ValueSpec output(ValueSpecs inputs) const override;
  std::int64_t flops(ValueSpecs inputs) const override;
  std::unique_ptr<Kernel> compile(const Engine& engine, ValueLayouts inputs, Purpose purpose) const override;

 private:
  LocalContrastNormOptions options_;
};

}  // namespace distbelief
