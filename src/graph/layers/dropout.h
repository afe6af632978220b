#pragma once

#include "graph/layer.h"

namespace distbelief {

struct DropoutOptions {
  float rate = 0.5F;  ///< the share that is set to zero, in [0, 1); exact to 1/65536
  /// Tells this layer's random numbers from those of others: a hash of its name.
  std::uint64_t salt = 0;
  std::int64_t first = 0;  ///< the place of a sample's first element, where this is a part of a layer
};

/// In training sets elements to zero at random and scales the others by 1 / (1 − rate); in inference does nothing.
/// Which elements is a function of (seed, epoch, sample, salt, element), whatever the batch or the number of threads.
class Dropout : public Layer {
 public:
  /// Throws InputError when the rate is not in [0, 1).
  explicit Dropout(DropoutOptions options);
  std::string_view type() const override { return "dropout"; }
  ValueSpec output(ValueSpecs inputs) const override;
  std::vector<Cut> cuts(ValueSpecs inputs) const override;
  LayerPart part(Cut cut, ValueSpecs inputs, const Slice& slice) const override;
  std::unique_ptr<Kernel> compile(const Engine& engine, ValueLayouts inputs, Purpose purpose) const override;

 private:
  DropoutOptions options_;
};

}  // namespace distbelief
