#include "exec/layer_timer.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/clock.h"
#include "base/parallel.h"
#include "exec/busy_others.h"
#include "graph/exchanges/shared_batch_norm.h"
#include "graph/layer.h"
#include "tensor/buffer.h"

namespace distbelief {
namespace {

constexpr int kFewestRuns = 2;
constexpr int kMostRuns = 30;
constexpr double kSecondsOfRuns = 0.02;
constexpr int kUsualRuns = 5;  ///< unless they take longer than this:
constexpr double kMostSecondsOfRuns = 0.1;
constexpr std::size_t kLine = 64;

/// Numbers that no kernel stumbles over.
Buffer some_numbers(std::size_t bytes) {
  Buffer buffer((std::max(bytes, kLine) + kLine - 1) / kLine * kLine);
  std::int64_t i = 0;
  for (float& number : buffer.as<float>()) {
    number = 0.01F * static_cast<float>(i++ % 17 - 8);
  }
  return buffer;
}

ValueLayout layout_for(const Layer& layer, const ValueSpec& spec) {
  ValueLayout layout{spec, plain_layout(spec.shape)};
  const bool wide =
      static_cast<unsigned>(dnnl::get_effective_cpu_isa()) >= static_cast<unsigned>(dnnl::cpu_isa::avx512_core);
  const std::int64_t block = wide ? 16 : 8;
  if (layer.accepts_any_layout() && spec.shape.rank() == 4 && spec.shape[1] % block == 0) {
    layout.layout = dnnl::memory::desc(spec.shape.dims(), dnnl::memory::data_type::f32,
                                       wide ? dnnl::memory::format_tag::nChw16c : dnnl::memory::format_tag::nChw8c);
  }
  return layout;
}

/// A kernel with memory of its own.
class TimedKernel {
 public:
  TimedKernel(const Layer& layer, ValueSpecs inputs, Backward backward) {
    std::vector<ValueLayout> layouts;
    for (const ValueSpec& spec : inputs) {
      layouts.push_back(layout_for(layer, spec));
    }
    kernel_ = layer.compile(engine_, layouts, Purpose::training);
    const KernelTraits& traits = kernel_->traits();
    KernelMemory memory;
    for (const ValueLayout& layout : layouts) {
      memory.inputs.push_back(keep(layout.layout.get_size()));
    }
    const bool same = traits.is_view || traits.views_input;
    memory.output =
        same ? static_cast<float*>(const_cast<void*>(memory.inputs[0])) : keep(kernel_->output().layout.get_size());
    memory.output_gradient = keep(kernel_->output().layout.get_size());
    float* shared = nullptr;
    for (const ValueLayout& layout : layouts) {
      float* own = backward.inputs || traits.writes_every_gradient ? keep(layout.layout.get_size()) : nullptr;
      shared = shared == nullptr ? own : shared;
      memory.input_gradients.push_back(traits.shares_gradient ? shared : own);
    }
    for (const ParameterSpec& spec : layer.parameters(inputs)) {
      const auto bytes = static_cast<std::size_t>(spec.shape.elements()) * sizeof(float);
      memory.parameters.push_back(keep(bytes));
      memory.parameter_gradients.push_back(keep(bytes));
    }
    memory.workspace = reinterpret_cast<std::byte*>(keep(traits.workspace_bytes));
    memory.scratch = reinterpret_cast<std::byte*>(keep(traits.scratch_bytes));
    kernel_->bind(memory);
    ids_.resize(static_cast<std::size_t>(inputs[0].shape[0]));
    std::iota(ids_.begin(), ids_.end(), 0);
    step_ = {.training = true, .seed = 1, .sample_ids = ids_};
    runs_backward_ = backward.runs() && !traits.passes_gradient;
  }

  LayerTime least() {
    (void)once();  // primitives make themselves ready in their first run
    LayerTime least = {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
    const Clock::time_point began = Clock::now();
    const auto goes_on = [&](int run) {
      const double seconds = seconds_since(began);
      return run < kFewestRuns || (run < kUsualRuns && seconds < kMostSecondsOfRuns) ||
             (run < kMostRuns && seconds < kSecondsOfRuns);
    };
    for (int run = 0; goes_on(run); ++run) {
      const LayerTime time = once();
      least = {std::min(least.forward, time.forward), std::min(least.backward, time.backward)};
    }
    return least;
  }

  LayerTime once() {
    LayerTime time;
    const Clock::time_point began = Clock::now();
    kernel_->forward(step_);
    time.forward = seconds_since(began);
    const Clock::time_point turned = Clock::now();
    if (runs_backward_) {
      kernel_->backward(step_);
    }
    time.backward = seconds_since(turned);
    return time;
  }

 private:
  float* keep(std::size_t bytes) {
    memory_.push_back(some_numbers(bytes));
    return memory_.back().as<float>().data();
  }

  Engine engine_;
  std::unique_ptr<Kernel> kernel_;
  std::vector<Buffer> memory_;
  std::vector<std::uint64_t> ids_;
  StepContext step_;
  bool runs_backward_ = true;
};

}  // namespace

std::optional<LayerTime> time_layer(const Layer& layer, ValueSpecs inputs, Backward backward, const TimedLoad& load) {
  if (is_exchange(layer) || dynamic_cast<const SharedBatchNorm*>(&layer) != nullptr || inputs.empty()) {
    return std::nullopt;
  }
  std::int64_t floats = layer.output(inputs).shape.elements();
  for (const ValueSpec& spec : inputs) {
    if (spec.kind != ValueKind::dense) {
      return std::nullopt;
    }
    floats += spec.shape.elements();
  }
  for (const ParameterSpec& spec : layer.parameters(inputs)) {
    floats += spec.shape.elements();
  }
  if (2 * load.processes * floats * static_cast<std::int64_t>(sizeof(float)) > kMostTimedBytes) {
    return std::nullopt;
  }
  const BusyOthers others(load.processes - 1, [&]() -> BusyOthers::Work {
    set_thread_count(load.threads);
    auto kernel = std::make_shared<TimedKernel>(layer, inputs, backward);  // shared: a function can be copied
    return [kernel] { (void)kernel->once(); };
  });
  set_thread_count(load.threads);
  return TimedKernel(layer, inputs, backward).least();
}

}  // namespace distbelief
