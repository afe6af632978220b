#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "graph/kernel.h"
#include "graph/value.h"
#include "tensor/parameter_spec.h"

namespace distbelief {

class Layer;
using LayerPtr = std::shared_ptr<const Layer>;  // shared: a graph, its fused copy and its programs all read the layer

/// What kernels are compiled for: inference keeps nothing for a backward pass.
enum class Purpose { training, inference };

/// What a layer computes, without saying where. Immutable; knows shapes and arithmetic only: not ranks, not optimizers,
/// not how its parameters are stored or exchanged.
class Layer {
 public:
  virtual ~Layer() = default;
  /// As model files write it: "conv2d".
  virtual std::string_view type() const = 0;
  /// Throws ShapeError, naming what was expected and what came, when `inputs` do not fit.
  virtual ValueSpec output(ValueSpecs inputs) const = 0;
  virtual std::vector<ParameterSpec> parameters(ValueSpecs inputs) const;
  /// Multiplications and additions of one forward pass.
  virtual std::int64_t flops(ValueSpecs inputs) const;
  /// False: compile() sees plain inputs only, the executor reorders. True: any layout of oneDNN's.
  virtual bool accepts_any_layout() const { return false; }
  /// This layer followed by `next` as one layer, when that is faster; null when it is not possible.
  virtual LayerPtr fused_with(const Layer& next) const;
  /// Creates the primitives once, for these shapes; they then run many times. `inputs` fit: output() was called before.
  virtual std::unique_ptr<Kernel> compile(const Engine& engine, ValueLayouts inputs, Purpose purpose) const = 0;
};

/// Throws ShapeError unless there are `count` inputs, all dense.
void expect_dense_inputs(const Layer& layer, ValueSpecs inputs, std::size_t count);
/// One dense input of rank 4 (batch, channels, height, width), or ShapeError.
const Shape& expect_image(const Layer& layer, ValueSpecs inputs);

}  // namespace distbelief
