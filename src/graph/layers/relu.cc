#include "graph/layers/relu.h"

#include "graph/layers/pooling.h"
#include "tensor/vector_ops.h"

namespace distbelief {
namespace {

class ReluKernel : public Kernel {
 public:
  explicit ReluKernel(const ValueLayout& value) : Kernel(value), count_(value.stored_floats()) {
    traits_ = {.backward_reads_inputs = false,
               .backward_reads_output = true,
               .forward_in_place = true,
               .backward_in_place = true};
  }
  void forward(const StepContext& /*step*/) override {
    relu(static_cast<const float*>(memory_.inputs[0]), memory_.output, count_);
  }
  void backward(const StepContext& /*step*/) override {
    relu_backward(memory_.output, memory_.output_gradient, memory_.input_gradients[0], count_);
  }

 private:
  const std::int64_t count_;
};

}  // namespace

ValueSpec Relu::output(ValueSpecs inputs) const {
  expect_dense_inputs(*this, inputs, 1);
  return inputs[0];
}

LayerPtr Relu::fused_with(const Layer& next) const {
  // The larger of two clamped numbers is the clamped larger one: clamp after pooling, where there is less to clamp.
  const auto* pooling = dynamic_cast<const Pooling*>(&next);
  return pooling != nullptr ? pooling->with_relu() : nullptr;
}

std::unique_ptr<Kernel> Relu::compile(const Engine& /*engine*/, ValueLayouts inputs, Purpose /*purpose*/) const {
  return std::make_unique<ReluKernel>(inputs[0]);
}

}  // namespace distbelief
