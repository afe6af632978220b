#include "graph/layers/conv2d.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "base/error.h"
#include "base/parallel.h"
#include "graph/layers/channel_block.h"
#include "graph/layers/relu.h"
#include "graph/layers/reordering.h"
#include "graph/layers/sparse_conv_gradient.h"
#include "graph/layers/thin_conv_gradient.h"
#include "tensor/vector_ops.h"

namespace distbelief {
namespace {

using dnnl::convolution_backward_data;
using dnnl::convolution_backward_weights;
using dnnl::convolution_forward;
using Desc = dnnl::memory::desc;
using Dims = dnnl::memory::dims;

Desc any_layout(const Dims& dims) { return {dims, dnnl::memory::data_type::f32, dnnl::memory::format_tag::any}; }

std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

/// Hands out aligned pieces of a block of memory, twice: first to add up sizes, then to place.
class Pieces {
 public:
  explicit Pieces(std::byte* base = nullptr) : base_(base) {}
  std::byte* take(std::size_t bytes) {
    std::byte* piece = base_ == nullptr ? nullptr : base_ + used_;
    used_ += aligned(bytes);
    return piece;
  }
  std::size_t used() const { return used_; }

 private:
  std::byte* base_;
  std::size_t used_ = 0;
};

class Conv2dKernel : public Kernel {
 public:
  Conv2dKernel(const Engine& engine, const ValueLayout& input, const Shape& output, const Conv2dOptions& options,
               Purpose purpose)
      : Kernel(ValueLayout{{output, ValueKind::dense}, {}}), engine_(engine), options_(options) {
    const Window& w = options.window;
    const Shape& image = input.spec.shape;
    const Dims source(image.dims().begin(), image.dims().end());
    const Dims destination(output.dims().begin(), output.dims().end());
    Dims weights = {options.filters, image[1] / options.groups, w.kernel.height, w.kernel.width};
    if (options.groups > 1) {
      weights = {options.groups, options.filters / options.groups, image[1] / options.groups, w.kernel.height,
                 w.kernel.width};
    }
    const Desc bias = plain_layout(Shape{options.filters});
    const Dims strides = {w.stride.height, w.stride.width};
    const Dims dilates = {w.dilation.height - 1, w.dilation.width - 1};
    const Dims padding = {w.padding.height, w.padding.width};
    const bool training = purpose == Purpose::training;

    dnnl::primitive_attr attributes;
    if (options.relu) {
      dnnl::post_ops after;
      after.append_eltwise(1.0F, dnnl::algorithm::eltwise_relu, 0.0F, 0.0F);
      attributes.set_post_ops(after);
    }
    const auto propagation = training ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
    const auto forward_desc =
        options.bias ? convolution_forward::desc(propagation, dnnl::algorithm::convolution_direct, any_layout(source),
                                                 any_layout(weights), bias, any_layout(destination), strides, dilates,
                                                 padding, padding)
                     : convolution_forward::desc(propagation, dnnl::algorithm::convolution_direct, any_layout(source),
                                                 any_layout(weights), any_layout(destination), strides, dilates,
                                                 padding, padding);
    const convolution_forward::primitive_desc forward_pd(forward_desc, attributes, engine.engine());
    forward_ = convolution_forward(forward_pd);
    output_.layout = forward_pd.dst_desc();
    source_layout_ = forward_pd.src_desc();
    plain_weights_ = plain_layout(Shape(weights));
    weights_layout_ = forward_pd.weights_desc();
    input_reorder_ = Reordering(engine, input.layout, source_layout_);
    weights_reorder_ = Reordering(engine, plain_weights_, weights_layout_);

    if (training) {
      const auto backward_weights_desc =
          options.bias ? convolution_backward_weights::desc(dnnl::algorithm::convolution_direct, any_layout(source),
                                                            any_layout(weights), bias, any_layout(destination), strides,
                                                            dilates, padding, padding)
                       : convolution_backward_weights::desc(dnnl::algorithm::convolution_direct, any_layout(source),
                                                            any_layout(weights), any_layout(destination), strides,
                                                            dilates, padding, padding);
      backward_weights_pd_ =
          convolution_backward_weights::primitive_desc(backward_weights_desc, engine.engine(), forward_pd);
      backward_weights_ = convolution_backward_weights(backward_weights_pd_);
      const convolution_backward_data::desc backward_data_desc(dnnl::algorithm::convolution_direct, any_layout(source),
                                                               any_layout(weights), any_layout(destination), strides,
                                                               dilates, padding, padding);
      backward_data_pd_ = convolution_backward_data::primitive_desc(backward_data_desc, engine.engine(), forward_pd);
      backward_data_ = convolution_backward_data(backward_data_pd_);

      source_for_weights_ = Reordering(engine, source_layout_, backward_weights_pd_.src_desc());
      gradient_for_weights_ = Reordering(engine, output_.layout, backward_weights_pd_.diff_dst_desc());
      weights_gradient_reorder_ = Reordering(engine, backward_weights_pd_.diff_weights_desc(), plain_weights_);
      gradient_for_data_ = Reordering(engine, output_.layout, backward_data_pd_.diff_dst_desc());
      weights_for_data_ = Reordering(engine, plain_weights_, backward_data_pd_.weights_desc());
      same_weights_ = backward_data_pd_.weights_desc() == weights_layout_;
      input_gradient_reorder_ = Reordering(engine, backward_data_pd_.diff_src_desc(), input.layout);

      const Desc blocked = channel_blocked_layout(output);
      if (ThinConvGradient::fits(image, options.filters, options.groups, w) && input.is_plain() &&
          !input_reorder_.needed() && output_.layout == blocked) {
        thin_gradient_.emplace(image, options.filters, w, Extent{output[2], output[3]});
      }
      const Desc blocked_source = channel_blocked_layout(image);
      const bool thick = source_layout_ == blocked_source && input.layout == blocked_source;
      if (SparseConvGradient::fits(image, options.filters, options.groups, w) && output_.layout == blocked &&
          (thick || thin_gradient_)) {
        sparse_gradient_.emplace(image, options.filters, w, Extent{output[2], output[3]}, !thick);
      }
    }
    traits_.backward_reads_inputs = !input_reorder_.needed();
    traits_.backward_reads_output = options.relu;
    place(nullptr, nullptr, training);
  }

  void bind(const KernelMemory& memory) override {
    memory_ = memory;
    const bool training = backward_weights_pd_.get(true) != nullptr;
    place(memory.workspace, memory.scratch, training);
    const auto bound = [this](const Desc& desc, const void* data) { return bind_memory(engine_, desc, data); };

    input_reorder_.bind(engine_, memory.inputs[0], source_copy_);
    const void* source = input_reorder_.needed() ? source_copy_ : memory.inputs[0];
    weights_reorder_.bind(engine_, memory.parameters[0], weights_copy_);
    const void* weights = weights_reorder_.needed() ? weights_copy_ : static_cast<const void*>(memory.parameters[0]);
    forward_arguments_ = {{DNNL_ARG_SRC, bound(source_layout_, source)},
                          {DNNL_ARG_WEIGHTS, bound(weights_layout_, weights)},
                          {DNNL_ARG_DST, bound(output_.layout, memory.output)}};
    const Desc bias = plain_layout(Shape{options_.filters});
    if (options_.bias) {
      forward_arguments_.emplace(DNNL_ARG_BIAS, bound(bias, memory.parameters[1]));
    }
    if (!training) {
      return;
    }
    const void* gradient = options_.relu ? masked_gradient_ : static_cast<const void*>(memory.output_gradient);
    source_for_weights_.bind(engine_, source, source_for_weights_copy_);
    gradient_for_weights_.bind(engine_, gradient, gradient_for_weights_copy_);
    weights_gradient_reorder_.bind(engine_, weights_gradient_, memory.parameter_gradients[0]);
    backward_weights_arguments_ = {
        {DNNL_ARG_SRC,
         bound(backward_weights_pd_.src_desc(), source_for_weights_.needed() ? source_for_weights_copy_ : source)},
        {DNNL_ARG_DIFF_DST, bound(backward_weights_pd_.diff_dst_desc(),
                                  gradient_for_weights_.needed() ? gradient_for_weights_copy_ : gradient)},
        {DNNL_ARG_DIFF_WEIGHTS, bound(backward_weights_pd_.diff_weights_desc(),
                                      weights_gradient_reorder_.needed() ? static_cast<void*>(weights_gradient_)
                                                                         : memory.parameter_gradients[0])}};
    if (options_.bias) {
      backward_weights_arguments_.emplace(DNNL_ARG_DIFF_BIAS, bound(bias, memory.parameter_gradients[1]));
    }
    if (memory.input_gradients[0] == nullptr) {
      return;
    }
    gradient_for_data_.bind(engine_, gradient, gradient_for_data_copy_);
    weights_for_data_.bind(engine_, memory.parameters[0], weights_for_data_copy_);
    const void* data_weights = memory.parameters[0];
    if (same_weights_) {
      data_weights = weights;
    } else if (weights_for_data_.needed()) {
      data_weights = weights_for_data_copy_;
    }
    input_gradient_reorder_.bind(engine_, input_gradient_copy_, memory.input_gradients[0]);
    backward_data_arguments_ = {
        {DNNL_ARG_DIFF_DST,
         bound(backward_data_pd_.diff_dst_desc(), gradient_for_data_.needed() ? gradient_for_data_copy_ : gradient)},
        {DNNL_ARG_WEIGHTS, bound(backward_data_pd_.weights_desc(), data_weights)},
        {DNNL_ARG_DIFF_SRC, bound(backward_data_pd_.diff_src_desc(), input_gradient_reorder_.needed()
                                                                         ? static_cast<void*>(input_gradient_copy_)
                                                                         : memory.input_gradients[0])}};
  }

  void forward(const StepContext& /*step*/) override {
    input_reorder_.run(engine_);
    weights_reorder_.run(engine_);
    forward_.execute(engine_.stream(), forward_arguments_);
  }

  void backward(const StepContext& /*step*/) override {
    if (options_.relu) {
      relu_backward(memory_.output, memory_.output_gradient, reinterpret_cast<float*>(masked_gradient_),
                    output_.stored_floats());
    }
    const float* gradient = options_.relu ? reinterpret_cast<const float*>(masked_gradient_) : memory_.output_gradient;
    const auto* input = static_cast<const float*>(memory_.inputs[0]);
    float* bias_gradient = options_.bias ? memory_.parameter_gradients[1] : nullptr;
    if (sparse_gradient_ && (!thin_gradient_ || memory_.input_gradients[0] == nullptr) &&
        sparse_gradient_->worthwhile(gradient)) {
      sparse_gradient_->run(input, gradient, memory_.parameters[0], memory_.parameter_gradients[0], bias_gradient,
                            memory_.input_gradients[0], own_scratch_, threads_);
      return;
    }
    if (thin_gradient_) {
      thin_gradient_->run(input, gradient, memory_.parameter_gradients[0], bias_gradient, own_scratch_, threads_);
    } else {
      source_for_weights_.run(engine_);
      gradient_for_weights_.run(engine_);
      backward_weights_.execute(engine_.stream(), backward_weights_arguments_);
      weights_gradient_reorder_.run(engine_);
    }
    if (memory_.input_gradients[0] != nullptr) {
      gradient_for_data_.run(engine_);
      if (!same_weights_) {
        weights_for_data_.run(engine_);
      }
      backward_data_.execute(engine_.stream(), backward_data_arguments_);
      input_gradient_reorder_.run(engine_);
    }
  }

 private:
  /// Shares out workspace and scratch; with null pointers it only adds up what is needed.
  void place(std::byte* workspace, std::byte* scratch, bool training) {
    Pieces kept(workspace);
    source_copy_ = kept.take(input_reorder_.bytes());
    weights_copy_ = kept.take(weights_reorder_.bytes());
    Pieces garbage(scratch);
    if (training) {
      masked_gradient_ = garbage.take(options_.relu ? output_.layout.get_size() : 0);
      const std::size_t thin_bytes = thin_gradient_ ? thin_gradient_->scratch_bytes(threads_) : 0;
      const std::size_t sparse_bytes = sparse_gradient_ ? sparse_gradient_->scratch_bytes(threads_) : 0;
      own_scratch_ = garbage.take(std::max(thin_bytes, sparse_bytes));
      if (!thin_gradient_) {
        source_for_weights_copy_ = garbage.take(source_for_weights_.bytes());
        gradient_for_weights_copy_ = garbage.take(gradient_for_weights_.bytes());
        weights_gradient_ =
            garbage.take(weights_gradient_reorder_.needed() ? backward_weights_pd_.diff_weights_desc().get_size() : 0);
      }
      gradient_for_data_copy_ = garbage.take(gradient_for_data_.bytes());
      weights_for_data_copy_ = garbage.take(same_weights_ ? 0 : weights_for_data_.bytes());
      input_gradient_copy_ =
          garbage.take(input_gradient_reorder_.needed() ? backward_data_pd_.diff_src_desc().get_size() : 0);
    }
    traits_.workspace_bytes = kept.used();
    traits_.scratch_bytes = garbage.used();
  }

  using Arguments = std::unordered_map<int, dnnl::memory>;

  const Engine& engine_;
  const Conv2dOptions options_;
  Desc source_layout_;
  Desc plain_weights_;
  Desc weights_layout_;
  convolution_forward forward_;
  convolution_backward_weights::primitive_desc backward_weights_pd_;
  convolution_backward_weights backward_weights_;
  convolution_backward_data::primitive_desc backward_data_pd_;
  convolution_backward_data backward_data_;
  Reordering input_reorder_, weights_reorder_, source_for_weights_, gradient_for_weights_, weights_gradient_reorder_,
      gradient_for_data_, weights_for_data_, input_gradient_reorder_;
  std::optional<ThinConvGradient> thin_gradient_;      ///< in place of oneDNN's, when the input has few channels
  std::optional<SparseConvGradient> sparse_gradient_;  ///< for both gradients, when there are few numbers to multiply
  const int threads_ = thread_count();
  bool same_weights_ = false;  ///< backward wants the weights in forward's layout
  Arguments forward_arguments_, backward_weights_arguments_, backward_data_arguments_;
  // Kept from forward to backward.
  std::byte* source_copy_ = nullptr;
  std::byte* weights_copy_ = nullptr;
  // Scratch.
  std::byte* masked_gradient_ = nullptr;
  std::byte* own_scratch_ = nullptr;  ///< of thin_gradient_ and sparse_gradient_
  std::byte* source_for_weights_copy_ = nullptr;
  std::byte* gradient_for_weights_copy_ = nullptr;
  std::byte* weights_gradient_ = nullptr;
  std::byte* gradient_for_data_copy_ = nullptr;
  std::byte* weights_for_data_copy_ = nullptr;
  std::byte* input_gradient_copy_ = nullptr;
};

}  // namespace

ValueSpec Conv2d::output(ValueSpecs inputs) const {
  const Shape& image = expect_image(*this, inputs);
  if (options_.filters < 1 || options_.groups < 1) {
    throw InputError(
        fmt::format("conv2d needs filters and groups of 1 or more, got {} and {}", options_.filters, options_.groups));
  }
  if (image[1] % options_.groups != 0 || options_.filters % options_.groups != 0) {
    throw ShapeError(fmt::format("conv2d: {} groups do not divide {} input channels and {} filters", options_.groups,
                                 image[1], options_.filters));
  }
  const Extent places = options_.window.places(*this, image);
  return {{image[0], options_.filters, places.height, places.width}, ValueKind::dense};
}

std::vector<ParameterSpec> Conv2d::parameters(ValueSpecs inputs) const {
  const Shape& image = expect_image(*this, inputs);
  const Extent kernel = options_.window.kernel;
  const Shape weight = {options_.filters, image[1] / options_.groups, kernel.height, kernel.width};
  std::vector<ParameterSpec> specs = {
      {.name = "weight", .shape = weight, .init = Initializer::he(weight.elements() / options_.filters)}};
  if (options_.bias) {
    specs.push_back({.name = "bias", .shape = {options_.filters}, .init = Initializer::zeros(), .decays = false});
  }
  return specs;
}

std::int64_t Conv2d::flops(ValueSpecs inputs) const {
  const Extent kernel = options_.window.kernel;
  return 2 * output(inputs).shape.elements() * (inputs[0].shape[1] / options_.groups) * kernel.height * kernel.width;
}

std::vector<Cut> Conv2d::cuts(ValueSpecs inputs) const {
  if (options_.groups == 1) {
    return {Cut::outputs, Cut::inputs, Cut::region};
  }
  const bool depthwise = options_.groups == inputs[0].shape[1] && options_.groups == options_.filters;
  return depthwise ? std::vector{Cut::channels, Cut::region} : std::vector{Cut::region};
}

LayerPart Conv2d::part(Cut cut, ValueSpecs /*inputs*/, const Slice& slice) const {
  Conv2dOptions options = options_;
  LayerPart part;
  switch (cut) {
    case Cut::outputs:
    case Cut::channels:
      options.filters = slice.size();
      options.groups = cut == Cut::channels ? slice.size() : 1;
      part.parameters = {{.name = "weight", .axis = 0, .slice = slice}, {.name = "bias", .axis = 0, .slice = slice}};
      break;
    case Cut::inputs:
      options.bias = options.bias && slice.begin == 0;
      part.parameters = {{.name = "weight", .axis = 1, .slice = slice}, {.name = "bias"}};
      break;
    case Cut::region:
    case Cut::none:
      options.window.padding.height = 0;
      part.parameters = {{.name = "weight", .partial_gradient = true}, {.name = "bias", .partial_gradient = true}};
      break;
  }
  if (!options.bias) {
    part.parameters.pop_back();
  }
  part.layer = std::make_shared<Conv2d>(options);
  return part;
}

RowsNeeded Conv2d::rows_needed(ValueSpecs /*inputs*/, const Slice& rows) const {
  return options_.window.rows_needed(rows);
}

LayerPtr Conv2d::fused_with(const Layer& next) const {
  if (options_.relu || dynamic_cast<const Relu*>(&next) == nullptr) {
    return nullptr;
  }
  Conv2dOptions options = options_;
  options.relu = true;
  return std::make_shared<Conv2d>(options);
}

std::unique_ptr<Kernel> Conv2d::compile(const Engine& engine, ValueLayouts inputs, Purpose purpose) const {
  const ValueSpec& input = inputs[0].spec;
  return std::make_unique<Conv2dKernel>(engine, inputs[0], output(std::span(&input, 1)).shape, options_, purpose);
}

}  // namespace distbelief
