#pragma once

#include "graph/layer.h"
#include "graph/layers/window.h"

namespace distbelief {

struct Conv2dOptions {
  std::int64_t filters = 0;
  Window window;
  std::int64_t groups = 1;  ///< equal to the input channels: depthwise
  bool bias = true;
  bool relu = false;  ///< followed by a ReLU, in one pass
};

/// Convolution of images with filters [filters, channels / groups, height, width] (cross-correlation, as is usual).
class Conv2d : public Layer {
 public:
  explicit Conv2d(Conv2dOptions options) : options_(options) {}
  std::string_view type() const override { return "conv2d"; }
  ValueSpec output(ValueSpecs inputs) const override;
  std::vector<ParameterSpec> parameters(ValueSpecs inputs) const override;
  std::int64_t flops(ValueSpecs inputs) const override;
  bool accepts_any_layout() const override { return true; }
  std::vector<Cut> cuts(ValueSpecs inputs) const override;
  LayerPart part(Cut cut, ValueSpecs inputs, const Slice& slice) const override;
  RowsNeeded rows_needed(ValueSpecs inputs, const Slice& rows) const override;
  LayerPtr fused_with(const Layer& next) const override;
  std::unique_ptr<Kernel> compile(const Engine& engine, ValueLayouts inputs, Purpose purpose) const override;

 private:
  Conv2dOptions options_;
};

}  // namespace distbelief
