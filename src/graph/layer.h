#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "graph/kernel.h"
#include "graph/split.h"
#include "graph/value.h"
#include "tensor/parameter_spec.h"

namespace distbelief {

class Layer;
using LayerPtr = std::shared_ptr<const Layer>;  // shared: a graph, its fused copy and its programs all read the layer

/// What kernels are compiled for: inference keeps nothing for a backward pass.
enum class Purpose { training, inference };

/// What a layer computes, without saying where. Immutable; knows shapes and arithmetic only: not ranks, not optimizers,
/// not how its parameters are stored or exchanged. The planner may cut it in the ways that it offers.
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

  // How the layer can be cut: several processes then each compute a part of it.

  /// The ways, best first, besides Cut::none, which is always possible.
  virtual std::vector<Cut> cuts(ValueSpecs inputs) const;
  /// How many places there are to share out: channels of the output (outputs), of the first input (inputs, channels),
  /// or rows of the output (region).
  virtual std::int64_t cut_places(Cut cut, ValueSpecs inputs) const;
  /// What one of them does. `inputs` are those of the whole layer; `slice` is of the cut_places(). What
  /// only one of the parts may do, such as adding a bias to a sum, the one does whose slice begins at 0. A layer that
  /// reads integers or sparse rows and is cut by inputs is given all of them, and passes over what is not its own.
  virtual LayerPart part(Cut cut, ValueSpecs inputs, const Slice& slice) const;
  /// Cut::region: which rows of its inputs the part needs that makes these rows of the output. It is given all of
  /// them, also those that lie outside of the image.
  virtual RowsNeeded rows_needed(ValueSpecs inputs, const Slice& rows) const;

  /// Creates the primitives once, for these shapes; they then run many times. `inputs` fit: output() was called before.
  virtual std::unique_ptr<Kernel> compile(const Engine& engine, ValueLayouts inputs, Purpose purpose) const = 0;
};

/// Throws ShapeError unless there are `count` inputs, all dense.
void expect_dense_inputs(const Layer& layer, ValueSpecs inputs, std::size_t count);
/// One dense input of rank 4 (batch, channels, height, width), or ShapeError.
const Shape& expect_image(const Layer& layer, ValueSpecs inputs);

/// Those of a layer that looks at each element by itself.
std::vector<Cut> cuts_of_elements(const Shape& value);

}  // namespace distbelief
