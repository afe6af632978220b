#pragma once

#include "graph/layer.h"

namespace distbelief {

/// Between two layers that processes share out in different ways, the value changes hands: all of it is put together
/// from what each has, or sums are made of what each has computed of them. In the words below "each" is each process
/// that shares the layers. Backward does the reverse with gradients. A gradient is either of the same kind as its value,
/// or, where each used the whole value for a part of the work, each has a part of its sum.
struct TensorExchangeOptions {
  enum class Kind : std::uint8_t {
    use,             ///< each has it whole and uses it for a part; the parts of its gradient are added up
    sum,             ///< each has a part of the sum; then all have the sum
    sum_and_use,     ///< the same, and then each uses it for a part
    gather,          ///< each has a slice; then all have the whole
    gather_and_use,  ///< the same, and then each uses it for a part
    slice,           ///< each has the whole; then only its slice
    sum_slice,       ///< each has a part of the sum; then its slice of the sum
  };
  Kind kind = Kind::use;
  int axis = 1;                             ///< of slices
  std::vector<std::int64_t> bounds = {};    ///< the i-th has places [bounds[i], bounds[i + 1]) of the axis
  int position = 0;                         ///< of this process
};

class TensorExchange : public Layer {
 public:
  explicit TensorExchange(TensorExchangeOptions options) : options_(std::move(options)) {}
  std::string_view type() const override { return "exchange"; }
  ValueSpec output(ValueSpecs inputs) const override;
  std::int64_t flops(ValueSpecs /*inputs*/) const override { return 0; }
  std::unique_ptr<Kernel> compile(const Engine& engine, ValueLayouts inputs, Purpose purpose) const override;
  const TensorExchangeOptions& options() const { return options_; }

 private:
  TensorExchangeOptions options_;
};

}  // namespace distbelief
