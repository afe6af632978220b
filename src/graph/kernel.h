#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "graph/exchange.h"
#include "graph/value.h"

namespace distbelief {

/// What a step tells every kernel, besides memory.
struct StepContext {
  bool training = false;
  /// Randomness is a function of (seed, epoch, sample, layer, element): see base/random.h.
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  std::span<const std::uint64_t> sample_ids = {};  ///< one for each row of the batch
  Exchange* exchange = nullptr;                    ///< for the layers of a part of a network
};

/// Where a kernel finds everything; bound once, valid until bound again. Null where nothing is wanted or offered.
struct KernelMemory {
  std::vector<const void*> inputs;  ///< floats, int32 for indices, SparseView for sparse
  float* output = nullptr;
  const float* output_gradient = nullptr;
  const float* second_output_gradient = nullptr;  ///< to be added; only for kernels that say adds_gradients
  std::vector<float*> input_gradients;            ///< null: nobody needs it
  std::vector<const float*> parameters;           ///< in the order of Layer::parameters()
  std::vector<float*> parameter_gradients;        ///< sums over the batch go here; averaged kinds: what was observed
  /// Of parameters with row_floats, backward() finds the rows of rows_read() zero and adds to them; it leaves the
  /// others alone. False: it writes all rows.
  bool touched_rows_only = false;
  std::byte* workspace = nullptr;  ///< kept from forward to backward
  std::byte* scratch = nullptr;    ///< garbage between calls
};

/// How a kernel treats its memory, so that the executor can let it go early or use it twice.
struct KernelTraits {
  std::size_t workspace_bytes = 0;
  std::size_t scratch_bytes = 0;
  bool backward_reads_inputs = true;
  bool backward_reads_output = false;
  /// The output is the input's memory seen with another shape; forward and backward do nothing.
  bool is_view = false;
  /// The output is the input's memory, but its gradient is not the input's: backward() makes one of the other.
  bool views_input = false;
  /// forward() may be given input 0's memory as its output.
  bool forward_in_place = false;
  /// backward() may be given the output gradient's memory as the gradient of input 0.
  bool backward_in_place = false;
  /// The gradient of every input is the output gradient itself: backward() has nothing to do.
  bool passes_gradient = false;
  /// The gradients of all inputs are equal: they share one memory, and backward() writes it once.
  bool shares_gradient = false;
  /// backward() must be given memory for the gradient of every input, wanted or not.
  bool writes_every_gradient = false;
  /// The gradient of the output is wanted, though nothing here is trained with it: it goes elsewhere.
  bool wants_gradient = false;
  /// There is no gradient of the output: backward() has that of the input from elsewhere.
  bool brings_gradient = false;
  /// backward() takes the output gradient as a sum of two, when a value has two readers.
  bool adds_gradients = false;
};

/// One layer compiled for fixed shapes: primitives that run many times. Forward and backward allocate nothing. One
/// thread at a time.
class Kernel {
 public:
  virtual ~Kernel() = default;

  const ValueLayout& output() const { return output_; }
  const KernelTraits& traits() const { return traits_; }

  /// Keeps the pointers; called before the first forward() and again only when memory has moved.
  virtual void bind(const KernelMemory& memory) { memory_ = memory; }
  virtual void forward(const StepContext& step) = 0;
  /// Writes (does not add to) the gradients that memory asks for. Called after forward() of the same step.
  virtual void backward(const StepContext& step) = 0;
  /// Which rows of its parameters with row_floats the input in memory needs, repeated as they come; valid as long as
  /// the input. All such parameters of a kernel have the same rows. Throws InputError for a row that does not exist.
  virtual std::span<const std::int32_t> rows_read() const { return {}; }

 protected:
  explicit Kernel(ValueLayout output, KernelTraits traits = {}) : output_(std::move(output)), traits_(traits) {}

  ValueLayout output_;
  KernelTraits traits_;
  KernelMemory memory_;
};

}  // namespace distbelief
