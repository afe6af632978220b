#pragma once

#include "graph/layer.h"
#include "graph/layers/window.h"

namespace distbelief {

struct PoolingOptions {
  enum class Kind { max, average, average_with_padding } kind = Kind::max;
  Window window;
  bool global = false;  ///< the window is the whole image, whatever its size
  bool relu = false;    ///< max only: followed by a ReLU, in one pass
};

/// The maximum or the mean of a window. Zeros of the padding never win a maximum, and count in the mean only when the
/// kind says so.
class Pooling : public Layer {
 public:
  explicit Pooling(PoolingOptions options) : options_(options) {}
  std::string_view type() const override;
  ValueSpec output(ValueSpecs inputs) const override;
  bool accepts_any_layout() const override { return true; }
  std::vector<Cut> cuts(ValueSpecs inputs) const override;
  LayerPart part(Cut cut, ValueSpecs inputs, const Slice& slice) const override;
  RowsNeeded rows_needed(ValueSpecs inputs, const Slice& rows) const override;
  std::unique_ptr<Kernel> compile(const Engine& engine, ValueLayouts inputs, Purpose purpose) const override;
  /// This layer and a ReLU after it (or before: the same for a maximum); null for means.
  LayerPtr with_relu() const;
  LayerPtr fused_with(const Layer& next) const override;

 private:
  Window window_on(const Shape& image) const;

  PoolingOptions options_;
};

}  // namespace distbelief
