#pragma once

#include "graph/layer.h"
#include "graph/layers/window.h"

namespace distbelief {

struct LocallyConnected2dOptions {
  std::int64_t filters = 0;
  Window window;
  bool bias = true;
};

/// A convolution whose filters are not shared: each place of the window has its own. weight is [filters, places down,
/// places across, channels, kernel height, kernel width], bias [filters, places down, places across].
class LocallyConnected2d : public Layer {
 public:
  explicit LocallyConnected2d(LocallyConnected2dOptions options) : options_(options) {}
  std::string_view type() const override { return "locally_connected2d"; }
  ValueSpec output(ValueSpecs inputs) const override;
  std::vector<ParameterSpec> parameters(ValueSpecs inputs) const override;
  std::int64_t flops(ValueSpecs inputs) const override;
  std::vector<Cut> cuts(ValueSpecs inputs) const override;
  LayerPart part(Cut cut, ValueSpecs inputs, const Slice& slice) const override;
  RowsNeeded rows_needed(ValueSpecs inputs, const Slice& rows) const override;
  std::unique_ptr<Kernel> compile(const Engine& engine, ValueLayouts inputs, Purpose purpose) const override;

 private:
  LocallyConnected2dOptions options_;
};

}  // namespace distbelief
