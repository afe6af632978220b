#include "graph/layers/batch_norm.h"

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "graph/exchanges/shared_batch_norm.h"
#include "graph/layers/relu.h"

namespace distbelief {
namespace {

using dnnl::batch_normalization_backward;
using dnnl::batch_normalization_forward;
using dnnl::normalization_flags;

class BatchNormKernel : public Kernel {
 public:
  BatchNormKernel(const Engine& engine, const ValueLayout& input, const BatchNormOptions& options, Purpose purpose)
      : Kernel(input), engine_(engine), training_(purpose == Purpose::training), channels_(input.spec.shape[1]) {
    normalization_flags flags = normalization_flags::use_scale | normalization_flags::use_shift;
    if (options.relu) {
      flags |= normalization_flags::fuse_norm_relu;
    }
    if (!training_) {
      flags |= normalization_flags::use_global_stats;
    }
    const auto propagation = training_ ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
    const batch_normalization_forward::primitive_desc forward_pd(
        batch_normalization_forward::desc(propagation, input.layout, options.epsilon, flags), engine.engine());
    forward_ = batch_normalization_forward(forward_pd);
    if (training_) {
      mask_layout_ = forward_pd.workspace_desc();
      const batch_normalization_backward::primitive_desc backward_pd(
          batch_normalization_backward::desc(dnnl::prop_kind::backward, input.layout, input.layout, options.epsilon,
                                             flags),
          engine.engine(), forward_pd);
      backward_ = batch_normalization_backward(backward_pd);
      const auto statistics = static_cast<std::size_t>(2 * channels_) * sizeof(float);
      statistics_bytes_ = (statistics + 63) / 64 * 64;
      traits_.workspace_bytes = statistics_bytes_ + mask_layout_.get_size();
      traits_.backward_in_place = true;
      traits_.writes_every_gradient = true;
    } else {
      traits_.forward_in_place = true;
    }
  }

  void bind(const KernelMemory& memory) override {
    memory_ = memory;
    const auto bound = [this](const void* data) { return bind_memory(engine_, output_.layout, data); };
    const dnnl::memory::desc row = plain_layout(Shape{channels_});
    const auto per_channel = [&](const void* data) { return bind_memory(engine_, row, data); };
    auto* mean = reinterpret_cast<float*>(memory.workspace);
    const float* means = training_ ? mean : memory.parameters[BatchNorm::kMean];
    const float* variances = training_ ? mean + channels_ : memory.parameters[BatchNorm::kVariance];
    forward_arguments_ = {{DNNL_ARG_SRC, bound(memory.inputs[0])},
                          {DNNL_ARG_DST, bound(memory.output)},
                          {DNNL_ARG_SCALE, per_channel(memory.parameters[BatchNorm::kScale])},
                          {DNNL_ARG_SHIFT, per_channel(memory.parameters[BatchNorm::kShift])},
                          {DNNL_ARG_MEAN, per_channel(means)},
                          {DNNL_ARG_VARIANCE, per_channel(variances)}};
    if (!training_) {
      return;
    }
    backward_arguments_ = {
        {DNNL_ARG_SRC, bound(memory.inputs[0])},
        {DNNL_ARG_SCALE, per_channel(memory.parameters[BatchNorm::kScale])},
        {DNNL_ARG_SHIFT, per_channel(memory.parameters[BatchNorm::kShift])},  // unread, yet asked for
        {DNNL_ARG_MEAN, per_channel(means)},
        {DNNL_ARG_VARIANCE, per_channel(variances)},
        {DNNL_ARG_DIFF_DST, bound(memory.output_gradient)},
        {DNNL_ARG_DIFF_SRC, bound(memory.input_gradients[0])},
        {DNNL_ARG_DIFF_SCALE, per_channel(memory.parameter_gradients[BatchNorm::kScale])},
        {DNNL_ARG_DIFF_SHIFT, per_channel(memory.parameter_gradients[BatchNorm::kShift])}};
    if (mask_layout_.get_size() > 0) {
      const auto mask = bind_memory(engine_, mask_layout_, memory.workspace + statistics_bytes_);
      forward_arguments_.emplace(DNNL_ARG_WORKSPACE, mask);
      backward_arguments_.emplace(DNNL_ARG_WORKSPACE, mask);
    }
  }

  void forward(const StepContext& /*step*/) override {
    forward_.execute(engine_.stream(), forward_arguments_);
    if (training_) {
      const auto* mean = reinterpret_cast<const float*>(memory_.workspace);
      const std::int64_t count = output_.spec.shape.elements() / channels_;
      const float unbiased = count > 1 ? static_cast<float>(count) / static_cast<float>(count - 1) : 1.0F;
      std::copy(mean, mean + channels_, memory_.parameter_gradients[BatchNorm::kMean]);
      std::transform(mean + channels_, mean + 2 * channels_, memory_.parameter_gradients[BatchNorm::kVariance],
                     [unbiased](float variance) { return variance * unbiased; });
    }
  }

  void backward(const StepContext& /*step*/) override { backward_.execute(engine_.stream(), backward_arguments_); }

 private:
  const Engine& engine_;
  const bool training_;
  const std::int64_t channels_;
  std::size_t statistics_bytes_ = 0;
  dnnl::memory::desc mask_layout_;  ///< where the fused ReLU let through
  batch_normalization_forward forward_;
  batch_normalization_backward backward_;
  std::unordered_map<int, dnnl::memory> forward_arguments_;
  std::unordered_map<int, dnnl::memory> backward_arguments_;
};

}  // namespace

ValueSpec BatchNorm::output(ValueSpecs inputs) const {
  expect_dense_inputs(*this, inputs, 1);
  const int rank = inputs[0].shape.rank();
  if (rank != 2 && rank != 4) {
    throw ShapeError(fmt::format("batch_norm takes rows or images, got {}", inputs[0].shape.text()));
  }
  return inputs[0];
}

std::vector<ParameterSpec> BatchNorm::parameters(ValueSpecs inputs) const {
  const Shape row = {inputs[0].shape[1]};
  const auto averaged = ParameterKind::averaged;
  return {
      {.name = "scale",
       .shape = row,
       .init = options_.zero_scale ? Initializer::zeros() : Initializer::ones(),
       .decays = false},
      {.name = "shift", .shape = row, .init = Initializer::zeros(), .decays = false},
      {.name = "mean", .shape = row, .init = Initializer::zeros(), .kind = averaged, .average_rate = options_.momentum},
      {.name = "variance",
       .shape = row,
       .init = Initializer::ones(),
       .kind = averaged,
       .average_rate = options_.momentum}};
}

std::int64_t BatchNorm::flops(ValueSpecs inputs) const { return 7 * inputs[0].shape.elements(); }

LayerPart BatchNorm::part(Cut cut, ValueSpecs inputs, const Slice& slice) const {
  if (cut == Cut::region) {
    return {.layer = std::make_shared<SharedBatchNorm>(options_, slice)};
  }
  LayerPart part;
  for (const ParameterSpec& spec : parameters(inputs)) {
    part.parameters.push_back({.name = spec.name, .axis = 0, .slice = slice});
  }
  return part;
}

LayerPtr BatchNorm::fused_with(const Layer& next) const {
  if (options_.relu || dynamic_cast<const Relu*>(&next) == nullptr) {
    return nullptr;
  }
  BatchNormOptions options = options_;
  options.relu = true;
  return std::make_shared<BatchNorm>(options);
}

std::unique_ptr<Kernel> BatchNorm::compile(const Engine& engine, ValueLayouts inputs, Purpose purpose) const {
  return std::make_unique<BatchNormKernel>(engine, inputs[0], options_, purpose);
}

}  // namespace distbelief
