#pragma once

#include "graph/layers/batch_norm.h"

namespace distbelief {

/// Batch norm of images whose rows several processes share out. Each has some rows of every channel, and statistics are
/// those of all rows: means and variances are put together in forward, the sums of gradients in backward. Scale, shift
/// and running statistics are copies of the whole layer's, and their gradients are of all rows, with the same bits in
/// each process.
class SharedBatchNorm : public Layer {
 public:
  /// `rows`: those of this process.
  SharedBatchNorm(BatchNormOptions options, Slice rows) : options_(options), norm_(options), rows_(rows) {}
  std::string_view type() const override { return norm_.type(); }
  ValueSpec output(ValueSpecs inputs) const override { return norm_.output(inputs); }
  std::vector<ParameterSpec> parameters(ValueSpecs inputs) const override { return norm_.parameters(inputs); }
  std::int64_t flops(ValueSpecs inputs) const override { return norm_.flops(inputs); }
  bool accepts_any_layout() const override { return true; }
  LayerPtr fused_with(const Layer& next) const override;
  std::unique_ptr<Kernel> compile(const Engine& engine, ValueLayouts inputs, Purpose purpose) const override;

  /// What it would be if these rows were all there are.
  const BatchNorm& alone() const { return norm_; }
  /// Floats that are added up over the processes, one sum after the other.
  static std::vector<std::int64_t> forward_sums(std::int64_t channels) { return {channels, channels}; }
  static std::vector<std::int64_t> backward_sums(std::int64_t channels) { return {2 * channels}; }

 private:
  BatchNormOptions options_;
  BatchNorm norm_;
  Slice rows_;
};

}  // namespace distbelief
