#include "graph/layers/activation.h"

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "base/multiversion.h"
#include "base/parallel.h"
#include "tensor/vector_ops.h"

namespace distbelief {
namespace {

using Arguments = std::unordered_map<int, dnnl::memory>;

dnnl::algorithm algorithm_of(Activation::Kind kind) {
  switch (kind) {
    case Activation::Kind::sigmoid:
      return dnnl::algorithm::eltwise_logistic_use_dst_for_bwd;
    case Activation::Kind::tanh:
      return dnnl::algorithm::eltwise_tanh_use_dst_for_bwd;
    case Activation::Kind::gelu:
      return dnnl::algorithm::eltwise_gelu_erf;
    case Activation::Kind::gelu_tanh:
      break;
  }
  return dnnl::algorithm::eltwise_gelu_tanh;
}

class ActivationKernel : public Kernel {
 public:
  ActivationKernel(const Engine& engine, const ValueLayout& value, Activation::Kind kind, Purpose purpose)
      : Kernel(value),
        engine_(engine),
        uses_output_(kind == Activation::Kind::sigmoid || kind == Activation::Kind::tanh) {
    const bool training = purpose == Purpose::training;
    const auto propagation = training ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
    const dnnl::eltwise_forward::primitive_desc forward_pd(
        dnnl::eltwise_forward::desc(propagation, algorithm_of(kind), value.layout, 0.0F, 0.0F), engine.engine());
    forward_ = dnnl::eltwise_forward(forward_pd);
    if (training) {
      backward_ = dnnl::eltwise_backward(dnnl::eltwise_backward::primitive_desc(
          dnnl::eltwise_backward::desc(algorithm_of(kind), value.layout, value.layout, 0.0F, 0.0F), engine.engine(),
          forward_pd));
    }
    traits_ = {.backward_reads_inputs = !uses_output_,
               .backward_reads_output = uses_output_,
               .forward_in_place = true,
               .backward_in_place = true};
  }

  void bind(const KernelMemory& memory) override {
    const auto bound = [this](const void* data) { return bind_memory(engine_, output_.layout, data); };
    forward_arguments_ = {{DNNL_ARG_SRC, bound(memory.inputs[0])}, {DNNL_ARG_DST, bound(memory.output)}};
    if (!memory.input_gradients.empty() && memory.input_gradients[0] != nullptr) {
      backward_arguments_ = {{DNNL_ARG_DIFF_DST, bound(memory.output_gradient)},
                             {DNNL_ARG_DIFF_SRC, bound(memory.input_gradients[0])},
                             uses_output_ ? std::pair{DNNL_ARG_DST, bound(memory.output)}
                                          : std::pair{DNNL_ARG_SRC, bound(memory.inputs[0])}};
    }
  }

  void forward(const StepContext& /*step*/) override { forward_.execute(engine_.stream(), forward_arguments_); }
  void backward(const StepContext& /*step*/) override { backward_.execute(engine_.stream(), backward_arguments_); }

 private:
  const Engine& engine_;
  const bool uses_output_;  ///< the derivative is a function of the result, so the input can go
  dnnl::eltwise_forward forward_;
  dnnl::eltwise_backward backward_;
  Arguments forward_arguments_;
  Arguments backward_arguments_;
};

DISTBELIEF_MULTIVERSION void softmax_gradient(const float* output, const float* gradient, float mean, float* out,
                                              std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] = output[i] * (gradient[i] - mean);
  }
}

class SoftmaxKernel : public Kernel {
 public:
  SoftmaxKernel(const Engine& engine, const ValueLayout& value, Purpose purpose) : Kernel(value), engine_(engine) {
    columns_ = value.spec.shape.dims().back();
    rows_ = value.spec.shape.elements() / columns_;
    rows_layout_ = plain_layout(Shape{rows_, columns_});
    const bool training = purpose == Purpose::training;
    const auto propagation = training ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
    const dnnl::softmax_forward::primitive_desc forward_pd(dnnl::softmax_forward::desc(propagation, rows_layout_, 1),
                                                           engine.engine());
    forward_ = dnnl::softmax_forward(forward_pd);
    traits_ = {.backward_reads_inputs = false,
               .backward_reads_output = true,
               .forward_in_place = true,
               .backward_in_place = true};
  }

  void bind(const KernelMemory& memory) override {
    memory_ = memory;
    const auto bound = [this](const void* data) { return bind_memory(engine_, rows_layout_, data); };
    forward_arguments_ = {{DNNL_ARG_SRC, bound(memory.inputs[0])}, {DNNL_ARG_DST, bound(memory.output)}};
  }

  void forward(const StepContext& /*step*/) override { forward_.execute(engine_.stream(), forward_arguments_); }

  void backward(const StepContext& /*step*/) override {
    // oneDNN's is a plain loop on many machines.
    parallel_for(rows_, std::max<std::int64_t>(1, 8192 / columns_), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        const float* output = memory_.output + r * columns_;
        const float* gradient = memory_.output_gradient + r * columns_;
        softmax_gradient(output, gradient, dot(output, gradient, columns_), memory_.input_gradients[0] + r * columns_,
                         columns_);
      }
    });
  }

 private:
  const Engine& engine_;
  std::int64_t rows_ = 0;
  std::int64_t columns_ = 0;
  dnnl::memory::desc rows_layout_;
  dnnl::softmax_forward forward_;
  Arguments forward_arguments_;
};

}  // namespace

std::string_view Activation::type() const {
  switch (kind_) {
    case Kind::sigmoid:
      return "sigmoid";
    case Kind::tanh:
      return "tanh";
    default:
      return "gelu";
  }
}

ValueSpec Activation::output(ValueSpecs inputs) const {
  expect_dense_inputs(*this, inputs, 1);
  return inputs[0];
}

std::unique_ptr<Kernel> Activation::compile(const Engine& engine, ValueLayouts inputs, Purpose purpose) const {
  return std::make_unique<ActivationKernel>(engine, inputs[0], kind_, purpose);
}

ValueSpec Softmax::output(ValueSpecs inputs) const {
  expect_dense_inputs(*this, inputs, 1);
  if (inputs[0].shape.rank() < 2) {
    throw ShapeError(fmt::format("softmax takes rows of scores, got {}", inputs[0].shape.text()));
  }
  return inputs[0];
}

std::unique_ptr<Kernel> Softmax::compile(const Engine& engine, ValueLayouts inputs, Purpose purpose) const {
  return std::make_unique<SoftmaxKernel>(engine, inputs[0], purpose);
}

}  // namespace distbelief
