#include "graph/layers/pooling.h"

#include <limits>
#include <unordered_map>

#include "base/error.h"
#include "graph/layers/max_pool_2x2.h"
#include "graph/layers/relu.h"
#include "graph/layers/reordering.h"
#include "tensor/vector_ops.h"

namespace distbelief {
namespace {

using dnnl::pooling_backward;
using dnnl::pooling_forward;
using Dims = dnnl::memory::dims;

class PoolingKernel : public Kernel {
 public:
  PoolingKernel(const Engine& engine, const ValueLayout& input, const Shape& output, const Window& window,
                const PoolingOptions& options, Purpose purpose)
      : Kernel(ValueLayout{{output, ValueKind::dense}, {}}), engine_(engine), relu_(options.relu) {
    const bool training = purpose == Purpose::training;
    const auto algorithm = options.kind == PoolingOptions::Kind::max ? dnnl::algorithm::pooling_max
                           : options.kind == PoolingOptions::Kind::average
                               ? dnnl::algorithm::pooling_avg_exclude_padding
                               : dnnl::algorithm::pooling_avg_include_padding;
    const Dims dims(output.dims().begin(), output.dims().end());
    const dnnl::memory::desc any(dims, dnnl::memory::data_type::f32, dnnl::memory::format_tag::any);
    const Dims strides = {window.stride.height, window.stride.width};
    const Dims kernel = {window.kernel.height, window.kernel.width};
    const Dims padding = {window.padding.height, window.padding.width};
    const auto propagation = training ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
    const pooling_forward::primitive_desc forward_pd(
        pooling_forward::desc(propagation, algorithm, input.layout, any, strides, kernel, padding, padding),
        engine.engine());
    forward_ = pooling_forward(forward_pd);
    input_layout_ = input.layout;
    output_.layout = forward_pd.dst_desc();
    choice_layout_ = forward_pd.workspace_desc();
    if (training) {
      const pooling_backward::primitive_desc backward_pd(
          pooling_backward::desc(algorithm, input.layout, output_.layout, strides, kernel, padding, padding),
          engine.engine(), forward_pd);
      backward_ = pooling_backward(backward_pd);
    }
    traits_ = {.workspace_bytes = training ? choice_layout_.get_size() : 0,
               .scratch_bytes = training && relu_ ? output_.layout.get_size() : 0,
               .backward_reads_inputs = false,
               .backward_reads_output = relu_};
  }

  void bind(const KernelMemory& memory) override {
    memory_ = memory;
    forward_arguments_ = {{DNNL_ARG_SRC, bind_memory(engine_, input_layout_, memory.inputs[0])},
                          {DNNL_ARG_DST, bind_memory(engine_, output_.layout, memory.output)}};
    const bool has_choice = choice_layout_.get_size() > 0 && memory.workspace != nullptr;
    if (has_choice) {
      forward_arguments_.emplace(DNNL_ARG_WORKSPACE, bind_memory(engine_, choice_layout_, memory.workspace));
    }
    if (!memory.input_gradients.empty() && memory.input_gradients[0] != nullptr) {
      const void* gradient = relu_ ? memory.scratch : static_cast<const void*>(memory.output_gradient);
      backward_arguments_ = {{DNNL_ARG_DIFF_DST, bind_memory(engine_, output_.layout, gradient)},
                             {DNNL_ARG_DIFF_SRC, bind_memory(engine_, input_layout_, memory.input_gradients[0])}};
      if (has_choice) {
        backward_arguments_.emplace(DNNL_ARG_WORKSPACE, bind_memory(engine_, choice_layout_, memory.workspace));
      }
    }
  }

  void forward(const StepContext& /*step*/) override {
    forward_.execute(engine_.stream(), forward_arguments_);
    if (relu_) {
      relu(memory_.output, memory_.output, output_.stored_floats());
    }
  }

  void backward(const StepContext& /*step*/) override {
    if (relu_) {
      relu_backward(memory_.output, memory_.output_gradient, reinterpret_cast<float*>(memory_.scratch),
                    output_.stored_floats());
    }
    backward_.execute(engine_.stream(), backward_arguments_);
  }

 private:
  const Engine& engine_;
  const bool relu_;
  dnnl::memory::desc input_layout_;
  dnnl::memory::desc choice_layout_;  ///< which element won each maximum
  pooling_forward forward_;
  pooling_backward backward_;
  std::unordered_map<int, dnnl::memory> forward_arguments_;
  std::unordered_map<int, dnnl::memory> backward_arguments_;
};

}  // namespace

std::string_view Pooling::type() const {
  if (options_.global) {
    return options_.kind == PoolingOptions::Kind::max ? "global_max_pool" : "global_average_pool";
  }
  return options_.kind == PoolingOptions::Kind::max ? "max_pool" : "average_pool";
}

Window Pooling::window_on(const Shape& image) const {
  return options_.global ? Window{.kernel = {image[2], image[3]}} : options_.window;
}

ValueSpec Pooling::output(ValueSpecs inputs) const {
  const Shape& image = expect_image(*this, inputs);
  const Window window = window_on(image);
  const Extent places = window.places(*this, image);
  if (window.padding.height >= window.kernel.height || window.padding.width >= window.kernel.width) {
    throw InputError(fmt::format("{}: padding must be smaller than the window", type()));
  }
  if (window.dilation != Extent{1, 1}) {
    throw InputError(
        fmt::format("{} takes no dilation, got {}x{}", type(), window.dilation.height, window.dilation.width));
  }
  return {{image[0], image[1], places.height, places.width}, ValueKind::dense};
}

LayerPtr Pooling::with_relu() const {
  if (options_.kind != PoolingOptions::Kind::max) {
    return nullptr;
  }
  PoolingOptions options = options_;
  options.relu = true;
  return std::make_shared<Pooling>(options);
}

LayerPtr Pooling::fused_with(const Layer& next) const {
  return dynamic_cast<const Relu*>(&next) != nullptr ? with_relu() : nullptr;
}

std::vector<Cut> Pooling::cuts(ValueSpecs /*inputs*/) const {
  // Zeros above and below the image are written out for a part, and so would count in a mean that passes over them.
  const bool by_region =
      !options_.global && (options_.kind != PoolingOptions::Kind::average || options_.window.padding.height == 0);
  return by_region ? std::vector{Cut::channels, Cut::region} : std::vector{Cut::channels};
}

LayerPart Pooling::part(Cut cut, ValueSpecs /*inputs*/, const Slice& /*slice*/) const {
  PoolingOptions options = options_;
  if (cut == Cut::region) {
    options.window.padding.height = 0;
  }
  return {.layer = std::make_shared<Pooling>(options)};
}

RowsNeeded Pooling::rows_needed(ValueSpecs /*inputs*/, const Slice& rows) const {
  RowsNeeded needed = options_.window.rows_needed(rows);
  if (options_.kind == PoolingOptions::Kind::max) {
    needed.fill = std::numeric_limits<float>::lowest();
  }
  return needed;
}

std::unique_ptr<Kernel> Pooling::compile(const Engine& engine, ValueLayouts inputs, Purpose purpose) const {
  const ValueSpec& input = inputs[0].spec;
  const Shape result = output(std::span(&input, 1)).shape;
  const Window window = window_on(input.shape);
  if (auto kernel = compile_max_pool_2x2(inputs[0], result, window, options_, purpose)) {
    return kernel;
  }
  return std::make_unique<PoolingKernel>(engine, inputs[0], result, window, options_, purpose);
}

}  // namespace distbelief
