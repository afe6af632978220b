#pragma once

#include "graph/layer.h"
#include "graph/layers/window.h"

namespace distbelief {

/// The square root of the sum of squares in a window (Lp pooling with p = 2). Where the window holds only zeros the
/// gradient is zero.
class L2Pool : public Layer {
 public:
  explicit L2Pool(Window window) : window_(window) {}
  std::string_view type() const override { return "l2_pool"; }
  ValueSpec output(ValueSpecs inputs) const override;
  std::int64_t flops(ValueSpecs inputs) const override;
  std::vector<Cut> cuts(ValueSpecs /*inputs*/) const override { return {Cut::channels, Cut::region}; }
  LayerPart part(Cut cut, ValueSpecs inputs, const Slice& slice) const override;
  RowsNeeded rows_needed(ValueSpecs /*inputs*/, const Slice& rows) const override { return window_.rows_needed(rows); }
  std::unique_ptr<Kernel> compile(const Engine& engine, ValueLayouts inputs, Purpose purpose) const override;

 private:
  Window window_;
};

}  // namespace distbelief
