#include "graph/layers/add.h"

#include <cstring>

#include "base/error.h"
#include "graph/layers/relu.h"
#include "graph/layers/reordering.h"
#include "tensor/vector_ops.h"

namespace distbelief {
namespace {

class AddKernel : public Kernel {
 public:
  AddKernel(const Engine& engine, ValueLayouts inputs, bool relu)
      : Kernel(inputs[0]),
        engine_(engine),
        relu_(relu),
        count_(inputs[0].stored_floats()),
        second_to_first_(engine, inputs[1].layout, inputs[0].layout),
        first_to_second_(engine, inputs[0].layout, inputs[1].layout) {
    const bool alike = !second_to_first_.needed();
    traits_ = {.scratch_bytes = second_to_first_.bytes(),
               .backward_reads_inputs = false,
               .backward_reads_output = relu,
               .forward_in_place = true,
               .backward_in_place = relu && alike,
               .passes_gradient = !relu && alike,
               .shares_gradient = relu && alike,
               .adds_gradients = relu};
  }

  void bind(const KernelMemory& memory) override {
    memory_ = memory;
    second_to_first_.bind(engine_, memory.inputs[1], memory.scratch);
    second_ = static_cast<const float*>(second_to_first_.needed() ? memory.scratch : memory.inputs[1]);
    if (second_to_first_.needed() && memory.input_gradients.size() == 2) {
      // Only when layouts differ do the inputs have gradients of their own.
      masked_ =
          memory.input_gradients[0] != nullptr ? memory.input_gradients[0] : reinterpret_cast<float*>(memory.scratch);
      if (memory.input_gradients[1] != nullptr) {
        first_to_second_.bind(engine_, masked_, memory.input_gradients[1]);
      }
    } else if (memory.input_gradients.size() == 2) {
      masked_ = memory.input_gradients[0] != nullptr ? memory.input_gradients[0] : memory.input_gradients[1];
    }
  }

  void forward(const StepContext& /*step*/) override {
    second_to_first_.run(engine_);
    const auto* first = static_cast<const float*>(memory_.inputs[0]);
    if (relu_) {
      add_relu(first, second_, memory_.output, count_);
    } else {
      add(first, second_, memory_.output, count_);
    }
  }

  void backward(const StepContext& /*step*/) override {
    if (relu_ && memory_.second_output_gradient != nullptr) {
      relu_backward_sum(memory_.output, memory_.output_gradient, memory_.second_output_gradient, masked_, count_);
    } else if (relu_) {
      relu_backward(memory_.output, memory_.output_gradient, masked_, count_);
    } else if (!traits_.passes_gradient) {
      std::memcpy(masked_, memory_.output_gradient, static_cast<std::size_t>(count_) * sizeof(float));
    }
    if (first_to_second_.needed() && memory_.input_gradients[1] != nullptr) {
      first_to_second_.run(engine_);
    }
  }

 private:
  const Engine& engine_;
  const bool relu_;
  const std::int64_t count_;
  Reordering second_to_first_;
  Reordering first_to_second_;
  const float* second_ = nullptr;
  float* masked_ = nullptr;
};

}  // namespace

ValueSpec Add::output(ValueSpecs inputs) const {
  expect_dense_inputs(*this, inputs, 2);
  if (inputs[0].shape != inputs[1].shape) {
    throw ShapeError(
        fmt::format("add takes two equal shapes, got {} and {}", inputs[0].shape.text(), inputs[1].shape.text()));
  }
  return inputs[0];
}

LayerPtr Add::fused_with(const Layer& next) const {
  return !relu_ && dynamic_cast<const Relu*>(&next) != nullptr ? std::make_shared<Add>(true) : nullptr;
}

std::unique_ptr<Kernel> Add::compile(const Engine& engine, ValueLayouts inputs, Purpose /*purpose*/) const {
  return std::make_unique<AddKernel>(engine, inputs, relu_);
}

}  // namespace distbelief
