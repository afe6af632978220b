#include "graph/exchanges/tensor_exchange.h"

#include <algorithm>

#include "base/check.h"
#include "graph/exchanges/sliced_value.h"
#include "tensor/vector_ops.h"

namespace distbelief {
namespace {

using Kind = TensorExchangeOptions::Kind;

/// The value stays as it is; only its gradient is added up.
class UseKernel : public Kernel {
 public:
  explicit UseKernel(const ValueLayout& value)
      : Kernel(value, {.backward_reads_inputs = false, .views_input = true, .backward_in_place = true}) {}
  void forward(const StepContext& /*step*/) override {}
  void backward(const StepContext& step) override {
    const std::int64_t count = output_.stored_floats();
    float* const gradient = memory_.input_gradients[0];
    if (gradient != memory_.output_gradient) {
      std::copy_n(memory_.output_gradient, count, gradient);
    }
    step.exchange->sum({gradient, static_cast<std::size_t>(count)});
  }
};

/// Partial sums become sums; the gradient is that of each part, once it is whole.
class SumKernel : public Kernel {
 public:
  SumKernel(const ValueLayout& value, bool use)
      : Kernel(value, {.backward_reads_inputs = false, .forward_in_place = true, .backward_in_place = true}), use_(use) {}
  void forward(const StepContext& step) override {
    const std::int64_t count = output_.stored_floats();
    if (memory_.inputs[0] != memory_.output) {
      std::copy_n(static_cast<const float*>(memory_.inputs[0]), count, memory_.output);
    }
    step.exchange->sum({memory_.output, static_cast<std::size_t>(count)});
  }
  void backward(const StepContext& step) override {
    const std::int64_t count = output_.stored_floats();
    float* const gradient = memory_.input_gradients[0];
    if (gradient != memory_.output_gradient) {
      std::copy_n(memory_.output_gradient, count, gradient);
    }
    if (use_) {
      step.exchange->sum({gradient, static_cast<std::size_t>(count)});
    }
  }

 private:
  const bool use_;
};

/// What turns a whole value into slices, or slices into a whole, in one direction or the other.
class SliceKernel : public Kernel {
 public:
  SliceKernel(const ValueLayout& output, const Shape& whole, const TensorExchangeOptions& options)
      : Kernel(output, {.backward_reads_inputs = false}), kind_(options.kind), value_(whole, options.axis, options) {
    traits_.scratch_bytes = value_.scratch_bytes();
  }

  void forward(const StepContext& step) override {
    const auto* input = static_cast<const float*>(memory_.inputs[0]);
    switch (kind_) {
      case Kind::gather:
      case Kind::gather_and_use:
        value_.gather(*step.exchange, input, memory_.output, memory_.scratch);
        break;
      case Kind::slice:
        value_.take_own(input, memory_.output);
        break;
      default:
        value_.sum_slices(*step.exchange, input, memory_.output, memory_.scratch);
    }
  }

  void backward(const StepContext& step) override {
    switch (kind_) {
      case Kind::gather:
        value_.take_own(memory_.output_gradient, memory_.input_gradients[0]);
        break;
      case Kind::gather_and_use:
        value_.sum_slices(*step.exchange, memory_.output_gradient, memory_.input_gradients[0], memory_.scratch);
        break;
      default:
        value_.gather(*step.exchange, memory_.output_gradient, memory_.input_gradients[0], memory_.scratch);
    }
  }

 private:
  const Kind kind_;
  const SlicedValue value_;
};

bool makes_whole(Kind kind) { return kind == Kind::gather || kind == Kind::gather_and_use; }

bool keeps_shape(Kind kind) { return kind == Kind::use || kind == Kind::sum || kind == Kind::sum_and_use; }

}  // namespace

ValueSpec TensorExchange::output(ValueSpecs inputs) const {
  if (keeps_shape(options_.kind)) {
    return inputs[0];
  }
  std::vector<std::int64_t> dims = inputs[0].shape.dims();
  const auto position = static_cast<std::size_t>(options_.position);
  dims.at(static_cast<std::size_t>(options_.axis)) =
      makes_whole(options_.kind) ? options_.bounds.back() : options_.bounds.at(position + 1) - options_.bounds[position];
  return {Shape(std::move(dims)), ValueKind::dense};
}

std::unique_ptr<Kernel> TensorExchange::compile(const Engine& /*engine*/, ValueLayouts inputs,
                                                Purpose /*purpose*/) const {
  switch (options_.kind) {
    case Kind::use:
      return std::make_unique<UseKernel>(inputs[0]);
    case Kind::sum:
    case Kind::sum_and_use:
      return std::make_unique<SumKernel>(inputs[0], options_.kind == Kind::sum_and_use);
    default:
      break;
  }
  const ValueSpec& input = inputs[0].spec;
  const Shape result = output(std::span(&input, 1)).shape;
  return std::make_unique<SliceKernel>(plain_value(result), makes_whole(options_.kind) ? result : input.shape, options_);
}

}  // namespace distbelief
