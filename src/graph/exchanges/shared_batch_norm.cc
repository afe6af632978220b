// With N elements of a channel in all processes, of which this one has n, and x^ = (x - mean) / sqrt(variance + e):
//   mean     = sum of n/N mean_i,   variance = sum of n/N (variance_i + (mean_i - mean)^2)
//   dx       = scale / sqrt(variance + e) (dy - sum(dy)/N - x^ sum(dy x^)/N)
// oneDNN's batch norm with statistics that are given does each part of it: forward as it is; backward gives the first
// term of dx and this process's sums; and the other two terms are a forward pass of x with a scale and a shift of their
// own. So nothing here depends on how values lie in memory.
#include "graph/exchanges/shared_batch_norm.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "graph/layers/relu.h"
#include "tensor/vector_ops.h"

namespace distbelief {
namespace {

using dnnl::batch_normalization_backward;
using dnnl::batch_normalization_forward;
using dnnl::normalization_flags;

constexpr std::size_t kLine = 64;

class SharedBatchNormKernel : public Kernel {
 public:
  SharedBatchNormKernel(const Engine& engine, const ValueLayout& input, const BatchNormOptions& options,
                        const Slice& rows)
      : Kernel(input),
        engine_(engine),
        epsilon_(options.epsilon),
        channels_(input.spec.shape[1]),
        share_(static_cast<float>(rows.size()) / static_cast<float>(rows.whole)),
        count_of_all_(input.spec.shape.elements() / channels_ / rows.size() * rows.whole) {
    const auto forward_pd = [&](dnnl::prop_kind kind, normalization_flags flags) {
      return batch_normalization_forward::primitive_desc(
          batch_normalization_forward::desc(kind, input.layout, options.epsilon, flags), engine.engine());
    };
    const normalization_flags affine =
        normalization_flags::use_global_stats | normalization_flags::use_scale | normalization_flags::use_shift;
    const normalization_flags flags = options.relu ? affine | normalization_flags::fuse_norm_relu : affine;
    observe_ = batch_normalization_forward(forward_pd(dnnl::prop_kind::forward_training, normalization_flags::none));
    const auto normalize_pd = forward_pd(dnnl::prop_kind::forward_training, flags);
    normalize_ = batch_normalization_forward(normalize_pd);
    mask_layout_ = normalize_pd.workspace_desc();
    backward_ = batch_normalization_backward(batch_normalization_backward::primitive_desc(
        batch_normalization_backward::desc(dnnl::prop_kind::backward, input.layout, input.layout, options.epsilon,
                                           flags),
        engine.engine(), normalize_pd));
    correct_ = batch_normalization_forward(forward_pd(dnnl::prop_kind::forward_inference, affine));
    traits_.workspace_bytes = numbers_bytes(2) + mask_layout_.get_size();
    traits_.scratch_bytes = numbers_bytes(4) + input.layout.get_size();
    traits_.backward_in_place = true;
    traits_.writes_every_gradient = true;
  }

  void bind(const KernelMemory& memory) override {
    memory_ = memory;
    mean_ = reinterpret_cast<float*>(memory.workspace);
    variance_ = mean_ + channels_;
    numbers_ = reinterpret_cast<float*>(memory.scratch);
    correction_ = reinterpret_cast<float*>(memory.scratch + numbers_bytes(4));
    const auto image = [this](const void* data) { return bind_memory(engine_, output_.layout, data); };
    const dnnl::memory::desc row = plain_layout(Shape{channels_});
    const auto numbers = [&](const void* data) { return bind_memory(engine_, row, data); };
    observe_arguments_ = {{DNNL_ARG_SRC, image(memory.inputs[0])},
                          {DNNL_ARG_DST, image(memory.output)},
                          {DNNL_ARG_MEAN, numbers(own_mean())},
                          {DNNL_ARG_VARIANCE, numbers(own_variance())}};
    normalize_arguments_ = {{DNNL_ARG_SRC, image(memory.inputs[0])},
                            {DNNL_ARG_DST, image(memory.output)},
                            {DNNL_ARG_SCALE, numbers(memory.parameters[BatchNorm::kScale])},
                            {DNNL_ARG_SHIFT, numbers(memory.parameters[BatchNorm::kShift])},
                            {DNNL_ARG_MEAN, numbers(mean_)},
                            {DNNL_ARG_VARIANCE, numbers(variance_)}};
    backward_arguments_ = {{DNNL_ARG_SRC, image(memory.inputs[0])},
                           {DNNL_ARG_SCALE, numbers(memory.parameters[BatchNorm::kScale])},
                           {DNNL_ARG_SHIFT, numbers(memory.parameters[BatchNorm::kShift])},  // unread, yet asked for
                           {DNNL_ARG_MEAN, numbers(mean_)},
                           {DNNL_ARG_VARIANCE, numbers(variance_)},
                           {DNNL_ARG_DIFF_DST, image(memory.output_gradient)},
                           {DNNL_ARG_DIFF_SRC, image(memory.input_gradients[0])},
                           {DNNL_ARG_DIFF_SCALE, numbers(scale_gradient())},
                           {DNNL_ARG_DIFF_SHIFT, numbers(shift_gradient())}};
    correct_arguments_ = {{DNNL_ARG_SRC, image(memory.inputs[0])},
                          {DNNL_ARG_DST, image(correction_)},
                          {DNNL_ARG_SCALE, numbers(correcting_scale())},
                          {DNNL_ARG_SHIFT, numbers(correcting_shift())},
                          {DNNL_ARG_MEAN, numbers(mean_)},
                          {DNNL_ARG_VARIANCE, numbers(variance_)}};
    if (mask_layout_.get_size() > 0) {
      const auto mask = bind_memory(engine_, mask_layout_, memory.workspace + numbers_bytes(2));
      normalize_arguments_.emplace(DNNL_ARG_WORKSPACE, mask);
      backward_arguments_.emplace(DNNL_ARG_WORKSPACE, mask);
    }
  }

  void forward(const StepContext& step) override {
    observe_.execute(engine_.stream(), observe_arguments_);  // of its output only the statistics are of use
    const auto count = static_cast<std::size_t>(channels_);
    for (std::size_t c = 0; c < count; ++c) {
      mean_[c] = share_ * own_mean()[c];
    }
    step.exchange->sum({mean_, count});
    for (std::size_t c = 0; c < count; ++c) {
      const float apart = own_mean()[c] - mean_[c];
      variance_[c] = share_ * (own_variance()[c] + apart * apart);
    }
    step.exchange->sum({variance_, count});
    normalize_.execute(engine_.stream(), normalize_arguments_);
    const auto all = static_cast<float>(count_of_all_);
    const float unbiased = count_of_all_ > 1 ? all / (all - 1) : 1.0F;
    std::copy_n(mean_, count, memory_.parameter_gradients[BatchNorm::kMean]);
    std::transform(variance_, variance_ + count, memory_.parameter_gradients[BatchNorm::kVariance],
                   [unbiased](float variance) { return variance * unbiased; });
  }

  void backward(const StepContext& step) override {
    backward_.execute(engine_.stream(), backward_arguments_);
    const auto count = static_cast<std::size_t>(channels_);
    step.exchange->sum({scale_gradient(), 2 * count});
    std::copy_n(scale_gradient(), count, memory_.parameter_gradients[BatchNorm::kScale]);
    std::copy_n(shift_gradient(), count, memory_.parameter_gradients[BatchNorm::kShift]);
    for (std::size_t c = 0; c < count; ++c) {
      const float factor = -memory_.parameters[BatchNorm::kScale][c] /
                           (std::sqrt(variance_[c] + epsilon_) * static_cast<float>(count_of_all_));
      correcting_scale()[c] = factor * scale_gradient()[c];
      correcting_shift()[c] = factor * shift_gradient()[c];
    }
    correct_.execute(engine_.stream(), correct_arguments_);
    float* const gradient = memory_.input_gradients[0];
    add(gradient, correction_, gradient, output_.stored_floats());
  }

 private:
  /// Of so many numbers for each channel.
  std::size_t numbers_bytes(std::size_t each) const {
    const std::size_t bytes = each * static_cast<std::size_t>(channels_) * sizeof(float);
    return (bytes + kLine - 1) / kLine * kLine;
  }
  float* own_mean() const { return numbers_; }  // these two in forward, the other four in backward
  float* own_variance() const { return numbers_ + channels_; }
  float* scale_gradient() const { return numbers_; }
  float* shift_gradient() const { return numbers_ + channels_; }
  float* correcting_scale() const { return numbers_ + 2 * channels_; }
  float* correcting_shift() const { return numbers_ + 3 * channels_; }

  const Engine& engine_;
  const float epsilon_;
  const std::int64_t channels_;
  const float share_;                ///< of the elements of a channel
  const std::int64_t count_of_all_;  ///< elements of a channel in all processes
  dnnl::memory::desc mask_layout_;   ///< where the fused ReLU let through
  batch_normalization_forward observe_, normalize_, correct_;
  batch_normalization_backward backward_;
  std::unordered_map<int, dnnl::memory> observe_arguments_, normalize_arguments_, backward_arguments_,
      correct_arguments_;
  float* mean_ = nullptr;  ///< these two: of all processes, in the workspace
  float* variance_ = nullptr;
  float* numbers_ = nullptr;  ///< these two: in scratch
  float* correction_ = nullptr;
};

}  // namespace

LayerPtr SharedBatchNorm::fused_with(const Layer& next) const {
  if (options_.relu || dynamic_cast<const Relu*>(&next) == nullptr) {
    return nullptr;
  }
  BatchNormOptions options = options_;
  options.relu = true;
  return std::make_shared<SharedBatchNorm>(options, rows_);
}

std::unique_ptr<Kernel> SharedBatchNorm::compile(const Engine& engine, ValueLayouts inputs, Purpose purpose) const {
  if (purpose == Purpose::inference) {
    return norm_.compile(engine, inputs, purpose);  // running statistics are the same everywhere
  }
  return std::make_unique<SharedBatchNormKernel>(engine, inputs[0], options_, rows_);
}

}  // namespace distbelief
