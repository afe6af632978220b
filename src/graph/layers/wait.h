#pragma once

#include "graph/layer.h"

namespace distbelief {

/// Leaves values as they are and waits instead of computing: for experiments with more processes than there are cores,
/// in which who waits leaves its core to others. Backward takes twice as long as forward, as it does for most layers.
class Wait : public Layer {
 public:
  /// For each row, forward. Throws InputError when it is negative or longer than a second.
  explicit Wait(double microseconds);
  std::string_view type() const override { return "wait"; }
  ValueSpec output(ValueSpecs inputs) const override;
  /// What a core would do in that time, so that plans by operations know of it too.
  std::int64_t flops(ValueSpecs inputs) const override;
  bool accepts_any_layout() const override { return true; }
  std::vector<Cut> cuts(ValueSpecs inputs) const override { return cuts_of_elements(inputs[0].shape); }
  LayerPart part(Cut cut, ValueSpecs inputs, const Slice& slice) const override;
  std::unique_ptr<Kernel> compile(const Engine& engine, ValueLayouts inputs, Purpose purpose) const override;
  double microseconds() const { return microseconds_; }

 private:
  double microseconds_;
};

}  // namespace distbelief
