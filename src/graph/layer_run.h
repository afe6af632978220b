#pragma once

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "graph/layer.h"
#include "tensor/buffer.h"

namespace distbelief {

// For tests only.

/// One layer compiled and run alone, with all values as plain vectors. It plays an executor of bad will: scratch and
/// workspace begin as NaN, and whatever the kernel says it will not read again is overwritten with NaN at once.
class LayerRun {
 public:
  struct Settings {
    Purpose purpose = Purpose::training;
    bool blocked = false;         ///< images come in blocks of eight channels, for layers that accept it
    bool in_place = false;        ///< share memory wherever the kernel's traits allow
    bool input_gradients = true;  ///< false: nobody wants them
    bool split_gradient = false;  ///< the output gradient as a sum of two, for kernels that take it so
  };

  LayerRun(const Layer& layer, std::vector<ValueSpec> specs, Settings settings)
      : specs_(std::move(specs)), settings_(settings), parameter_specs_(layer.parameters(specs_)) {
    std::vector<ValueLayout> layouts;
    for (const ValueSpec& spec : specs_) {
      ValueLayout layout{spec, {}};
      if (spec.kind == ValueKind::dense) {
        layout.layout = plain_layout(spec.shape);
        if (settings.blocked && spec.shape.rank() == 4 && layer.accepts_any_layout()) {
          layout.layout =
              dnnl::memory::desc(spec.shape.dims(), dnnl::memory::data_type::f32, dnnl::memory::format_tag::nChw8c);
        }
      }
      layouts.push_back(std::move(layout));
    }
    output_spec_ = layer.output(specs_);
    kernel_ = layer.compile(engine_, layouts, settings.purpose);
    layouts_ = std::move(layouts);
    inputs.resize(specs_.size());
    input_gradients.resize(specs_.size());
    for (const ParameterSpec& spec : parameter_specs_) {
      parameters.emplace_back(static_cast<std::size_t>(spec.shape.elements()));
      parameter_gradients.emplace_back(static_cast<std::size_t>(spec.shape.elements()));
    }
    allocate();
  }

  // Set these before forward().
  std::vector<std::vector<float>> inputs;
  std::vector<std::int32_t> indices;  ///< instead of input 0
  SparseRows sparse;                  ///< instead of input 0
  std::vector<std::vector<float>> parameters;
  StepContext step;
  // Found here after forward() or backward().
  std::vector<float> output;
  std::vector<std::vector<float>> input_gradients;
  std::vector<std::vector<float>> parameter_gradients;

  const std::vector<ParameterSpec>& parameter_specs() const { return parameter_specs_; }
  const std::vector<ValueSpec>& input_specs() const { return specs_; }
  const Shape& output_shape() const { return output_spec_.shape; }
  const KernelTraits& traits() const { return kernel_->traits(); }

  void forward() {
    bind();
    const KernelTraits& traits = kernel_->traits();
    for (std::size_t i = 0; i < specs_.size(); ++i) {
      if (specs_[i].kind == ValueKind::dense) {
        reorder(plain_layout(specs_[i].shape), inputs[i].data(), layouts_[i].layout, input_memory_[i].data());
      }
    }
    spoil(workspace_);
    spoil(scratch_);
    kernel_->forward(step);
    output.resize(static_cast<std::size_t>(output_spec_.shape.elements()));
    reorder(kernel_->output().layout, output_data(), plain_layout(output_spec_.shape), output.data());
    if (!traits.backward_reads_inputs && !traits.is_view && !shares_input()) {
      for (const Buffer& memory : input_memory_) {
        spoil(memory);
      }
    }
    if (!traits.backward_reads_output && !traits.is_view && !shares_input()) {
      spoil(output_memory_);
    }
    spoil(scratch_);
  }

  /// After forward(). `gradient` is d(objective)/d(output), plain.
  void backward(std::span<const float> gradient) {
    const KernelTraits& traits = kernel_->traits();
    const dnnl::memory::desc& layout = kernel_->output().layout;
    std::vector<float> part(gradient.begin(), gradient.end());
    if (splits_gradient()) {
      std::vector<float> rest(part.size());
      for (std::size_t i = 0; i < part.size(); ++i) {
        rest[i] = static_cast<float>(i % 3) - 1.0F;
        part[i] -= rest[i];
      }
      reorder(plain_layout(output_spec_.shape), rest.data(), layout, second_gradient_memory_.data());
    }
    reorder(plain_layout(output_spec_.shape), part.data(), layout, gradient_memory_.data());
    kernel_->backward(step);
    if (!settings_.input_gradients) {
      return;
    }
    for (std::size_t i = 0; i < specs_.size(); ++i) {
      if (specs_[i].kind != ValueKind::dense) {
        continue;
      }
      input_gradients[i].resize(static_cast<std::size_t>(specs_[i].shape.elements()));
      if (traits.is_view || traits.passes_gradient) {
        input_gradients[i].assign(gradient.begin(), gradient.end());
      } else {
        reorder(layouts_[i].layout, input_gradient_data(i), plain_layout(specs_[i].shape), input_gradients[i].data());
      }
    }
  }

 private:
  static void spoil(const Buffer& memory) {
    std::ranges::fill(memory.as<float>(), std::numeric_limits<float>::quiet_NaN());
  }

  bool shares_input() const {
    const KernelTraits& traits = kernel_->traits();
    const bool kept = settings_.purpose == Purpose::training && traits.backward_reads_inputs;
    return settings_.in_place && traits.forward_in_place && !kept;
  }
  bool shares_gradient() const { return settings_.in_place && kernel_->traits().backward_in_place; }
  bool splits_gradient() const { return settings_.split_gradient && kernel_->traits().adds_gradients; }
  float* output_data() const {
    const bool same = kernel_->traits().is_view || shares_input();
    return (same ? input_memory_[0] : output_memory_).as<float>().data();
  }
  float* input_gradient_data(std::size_t i) const {
    const std::size_t place = kernel_->traits().shares_gradient ? 0 : i;
    return (place == 0 && shares_gradient() ? gradient_memory_ : input_gradient_memory_[place]).as<float>().data();
  }

  void allocate() {
    const KernelTraits& traits = kernel_->traits();
    for (const ValueLayout& layout : layouts_) {
      const std::size_t bytes = layout.spec.kind == ValueKind::dense ? layout.layout.get_size() : 0;
      input_memory_.push_back(Buffer::zeroed(bytes));
      input_gradient_memory_.push_back(Buffer::zeroed(bytes));
    }
    output_memory_ = Buffer::zeroed(kernel_->output().layout.get_size());
    gradient_memory_ = Buffer::zeroed(output_memory_.bytes());
    second_gradient_memory_ = Buffer::zeroed(output_memory_.bytes());
    workspace_ = Buffer((traits.workspace_bytes + 63) / 64 * 64);
    scratch_ = Buffer((traits.scratch_bytes + 63) / 64 * 64);
  }

  void bind() {
    KernelMemory memory;
    for (std::size_t i = 0; i < specs_.size(); ++i) {
      const bool training = settings_.purpose == Purpose::training;
      switch (specs_[i].kind) {
        case ValueKind::dense:
          memory.inputs.push_back(input_memory_[i].data());
          break;
        case ValueKind::indices:
          memory.inputs.push_back(indices.data());
          break;
        case ValueKind::sparse:
          sparse_view_ = {&sparse, 0, specs_[i].shape[0]};
          memory.inputs.push_back(&sparse_view_);
          break;
      }
      if (training) {
        const bool wanted = (settings_.input_gradients || kernel_->traits().writes_every_gradient) &&
                            specs_[i].kind == ValueKind::dense;
        memory.input_gradients.push_back(wanted ? input_gradient_data(i) : nullptr);
      }
    }
    memory.output = output_data();
    if (settings_.purpose == Purpose::training) {
      memory.output_gradient = gradient_memory_.as<float>().data();
      memory.second_output_gradient = splits_gradient() ? second_gradient_memory_.as<float>().data() : nullptr;
    }
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      memory.parameters.push_back(parameters[i].data());
      memory.parameter_gradients.push_back(settings_.purpose == Purpose::training ? parameter_gradients[i].data()
                                                                                  : nullptr);
    }
    memory.workspace = workspace_.bytes() > 0 ? workspace_.data() : nullptr;
    memory.scratch = scratch_.data();
    kernel_->bind(memory);
  }

  void reorder(const dnnl::memory::desc& from, const void* source, const dnnl::memory::desc& to, void* destination) {
    if (from == to) {
      std::memcpy(destination, source, from.get_size());
      return;
    }
    dnnl::memory in = bind_memory(engine_, from, source);
    dnnl::memory out = bind_memory(engine_, to, destination);
    dnnl::reorder(in, out).execute(engine_.stream(), in, out);
  }

  Engine engine_;
  const std::vector<ValueSpec> specs_;
  const Settings settings_;
  const std::vector<ParameterSpec> parameter_specs_;
  ValueSpec output_spec_;
  std::vector<ValueLayout> layouts_;
  std::unique_ptr<Kernel> kernel_;
  SparseView sparse_view_;
  std::vector<Buffer> input_memory_;
  std::vector<Buffer> input_gradient_memory_;
  Buffer output_memory_;
  Buffer gradient_memory_;
  Buffer second_gradient_memory_;
  Buffer workspace_;
  Buffer scratch_;
};

}  // namespace distbelief
