#include "graph/layers/add.h"

#include <algorithm>
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
      : Kernel(inputs[0]), engine_(engine), relu_(relu), count_(inputs[0].stored_floats()) {
    for (const ValueLayout& input : inputs.subspan(1)) {
      others_.push_back({.to_first = Reordering(engine, input.layout, inputs[0].layout),
                         .from_first = Reordering(engine, inputs[0].layout, input.layout)});
      alike_ = alike_ && !others_.back().to_first.needed();
    }
    traits_ = {.scratch_bytes = alike_ ? 0 : inputs[0].layout.get_size(),
               .backward_reads_inputs = false,
               .backward_reads_output = relu,
               .forward_in_place = inputs.size() == 2,  // with more, the first could come again as a later one
               .backward_in_place = relu && alike_,
               .passes_gradient = !relu && alike_,
               .shares_gradient = relu && alike_,
               .adds_gradients = relu};
  }

  void bind(const KernelMemory& memory) override {
    memory_ = memory;
    for (std::size_t i = 0; i < others_.size(); ++i) {
      Other& other = others_[i];
      other.to_first.bind(engine_, memory.inputs[i + 1], memory.scratch);
      other.values = static_cast<const float*>(other.to_first.needed() ? memory.scratch : memory.inputs[i + 1]);
    }
    // Inputs that are laid out alike share one gradient. Otherwise each has its own, copied from the first's.
    const auto wanted = std::find_if(memory.input_gradients.begin(), memory.input_gradients.end(),
                                     [](const float* gradient) { return gradient != nullptr; });
    if (wanted == memory.input_gradients.end()) {
      return;
    }
    masked_ = alike_ ? *wanted : memory.input_gradients[0];
    if (masked_ == nullptr) {
      masked_ = reinterpret_cast<float*>(memory.scratch);
    }
    for (std::size_t i = 0; i < others_.size(); ++i) {
      others_[i].gradient = alike_ ? nullptr : memory.input_gradients[i + 1];
      if (others_[i].gradient != nullptr) {
        others_[i].from_first.bind(engine_, masked_, others_[i].gradient);
      }
    }
  }

  void forward(const StepContext& /*step*/) override {
    const auto* sum = static_cast<const float*>(memory_.inputs[0]);
    for (std::size_t i = 0; i < others_.size(); ++i) {
      others_[i].to_first.run(engine_);
      if (relu_ && i + 1 == others_.size()) {
        add_relu(sum, others_[i].values, memory_.output, count_);
      } else {
        add(sum, others_[i].values, memory_.output, count_);
      }
      sum = memory_.output;
    }
  }

  void backward(const StepContext& /*step*/) override {
    if (relu_ && memory_.second_output_gradient != nullptr) {
      relu_backward_sum(memory_.output, memory_.output_gradient, memory_.second_output_gradient, masked_, count_);
    } else if (relu_) {
      relu_backward(memory_.output, memory_.output_gradient, masked_, count_);
    } else if (!traits_.passes_gradient) {
      copy(memory_.output_gradient, masked_);
    }
    for (Other& other : others_) {
      if (other.gradient != nullptr && other.from_first.needed()) {
        other.from_first.run(engine_);
      } else if (other.gradient != nullptr) {
        copy(masked_, other.gradient);
      }
    }
  }

 private:
  /// An input after the first, brought into the first's layout and its gradient back.
  struct Other {
    Reordering to_first;
    Reordering from_first;
    const float* values = nullptr;
    float* gradient = nullptr;
  };

  void copy(const float* from, float* to) const {
    std::memcpy(to, from, static_cast<std::size_t>(count_) * sizeof(float));
  }

  const Engine& engine_;
  const bool relu_;
  const std::int64_t count_;
  bool alike_ = true;  ///< all inputs have one layout
  std::vector<Other> others_;
  float* masked_ = nullptr;
};

}  // namespace

ValueSpec Add::output(ValueSpecs inputs) const {
  if (inputs.size() < 2) {
    throw ShapeError(fmt::format("add takes two inputs or more, got {}", inputs.size()));
  }
  expect_dense_inputs(*this, inputs, inputs.size());
  for (const ValueSpec& input : inputs) {
    if (input.shape != inputs[0].shape) {
      throw ShapeError(
          fmt::format("add takes equal shapes, got {} and {}", inputs[0].shape.text(), input.shape.text()));
    }
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
