#include "graph/layers/dense.h"

#include <algorithm>

#include "base/error.h"
#include "base/parallel.h"
#include "graph/layers/relu.h"
#include "tensor/gemm.h"
#include "tensor/vector_ops.h"

namespace distbelief {
namespace {

/// What both kernels share: the bias and the ReLU around a product.
class DenseKernel : public Kernel {
 public:
  DenseKernel(const ValueSpec& output, const DenseOptions& options, std::int64_t inputs, Purpose purpose)
      : Kernel(plain_value(output.shape)),
        rows_(output.shape.elements() / options.units),
        inputs_(inputs),
        units_(options.units),
        options_(options) {
    traits_.backward_reads_output = options.relu;
    if (options.relu && purpose == Purpose::training) {
      traits_.scratch_bytes = static_cast<std::size_t>(rows_ * units_) * sizeof(float);
    }
  }

 protected:
  void finish_output() {
    if (options_.bias) {
      add_bias(memory_.output, memory_.parameters[1], rows_, units_, options_.relu);
    } else if (options_.relu) {
      relu(memory_.output, memory_.output, rows_ * units_);
    }
  }

  /// The gradient before the ReLU; also writes the bias gradient.
  const float* start_gradient() {
    const float* gradient = memory_.output_gradient;
    if (options_.relu) {
      auto* masked = reinterpret_cast<float*>(memory_.scratch);
      relu_backward(memory_.output, gradient, masked, rows_ * units_);
      gradient = masked;
    }
    if (options_.bias) {
      sum_rows(gradient, rows_, units_, memory_.parameter_gradients[1]);
    }
    return gradient;
  }

  const std::int64_t rows_;
  const std::int64_t inputs_;
  const std::int64_t units_;
  const DenseOptions options_;
};

class DenseInputKernel : public DenseKernel {
 public:
  using DenseKernel::DenseKernel;

  void forward(const StepContext& /*step*/) override {
    gemm(Transpose::no, Transpose::yes, rows_, units_, inputs_, input(), memory_.parameters[0], 0, memory_.output);
    finish_output();
  }

  void backward(const StepContext& /*step*/) override {
    const float* gradient = start_gradient();
    gemm(Transpose::yes, Transpose::no, units_, inputs_, rows_, gradient, input(), 0, memory_.parameter_gradients[0]);
    if (memory_.input_gradients[0] != nullptr) {
      gemm(Transpose::no, Transpose::no, rows_, inputs_, units_, gradient, memory_.parameters[0], 0,
           memory_.input_gradients[0]);
    }
  }

 private:
  const float* input() const { return static_cast<const float*>(memory_.inputs[0]); }
};

class SparseInputKernel : public DenseKernel {
 public:
  using DenseKernel::DenseKernel;

  void forward(const StepContext& /*step*/) override {
    const SparseView& view = input();
    parallel_for(rows_, 16, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        float* out = memory_.output + r * units_;
        std::fill(out, out + units_, 0.0F);
        for_each_entry(view, r, [&](std::int64_t column, float value) {
          axpy(value, memory_.parameters[0] + column * units_, out, units_);
        });
      }
    });
    finish_output();
  }

  void backward(const StepContext& /*step*/) override {
    const float* gradient = start_gradient();
    float* weight_gradient = memory_.parameter_gradients[0];
    if (!memory_.touched_rows_only) {
      std::fill(weight_gradient, weight_gradient + inputs_ * units_, 0.0F);
    }
    const SparseView& view = input();
    for (std::int64_t r = 0; r < rows_; ++r) {
      for_each_entry(view, r, [&](std::int64_t column, float value) {
        axpy(value, gradient + r * units_, weight_gradient + column * units_, units_);
      });
    }
  }

  std::span<const std::int32_t> rows_read() const override { return input().columns(); }

 private:
  const SparseView& input() const { return *static_cast<const SparseView*>(memory_.inputs[0]); }

  template <typename Visit>
  void for_each_entry(const SparseView& view, std::int64_t row, const Visit& visit) const {
    const SparseRows& rows = *view.rows;
    const auto first = static_cast<std::size_t>(rows.offsets[static_cast<std::size_t>(view.first + row)]);
    const auto last = static_cast<std::size_t>(rows.offsets[static_cast<std::size_t>(view.first + row + 1)]);
    for (std::size_t i = first; i < last; ++i) {
      const auto column = static_cast<std::int64_t>(rows.columns[i]) - options_.columns.begin;
      if (column >= 0 && column < inputs_) {
        visit(column, rows.values[i]);
      }
    }
  }
};

/// Of a sparse input: how many columns have weights here.
std::int64_t own_columns(const DenseOptions& options, const ValueSpec& input) {
  return options.columns.whole > 0 ? options.columns.size() : input.shape.dims().back();
}

const ValueSpec& expect_rows(const Dense& layer, ValueSpecs inputs) {
  if (inputs.size() != 1 || inputs[0].kind == ValueKind::indices) {
    expect_dense_inputs(layer, inputs, 1);
  }
  const int rank = inputs[0].shape.rank();
  if (rank != 2 && rank != 3) {
    throw ShapeError(fmt::format("dense takes rows (batch x features), got {}; put a flatten layer before it",
                                 inputs[0].shape.text()));
  }
  return inputs[0];
}

}  // namespace

ValueSpec Dense::output(ValueSpecs inputs) const {
  if (options_.units < 1) {
    throw InputError(fmt::format("dense needs units of 1 or more, got {}", options_.units));
  }
  std::vector<std::int64_t> dims = expect_rows(*this, inputs).shape.dims();
  dims.back() = options_.units;
  return {Shape(std::move(dims)), ValueKind::dense};
}

std::vector<ParameterSpec> Dense::parameters(ValueSpecs inputs) const {
  const ValueSpec& input = expect_rows(*this, inputs);
  const bool sparse = input.kind == ValueKind::sparse;
  const std::int64_t features = sparse ? own_columns(options_, input) : input.shape.dims().back();
  const Initializer init = options_.init == DenseOptions::Init::he       ? Initializer::he(features)
                           : options_.init == DenseOptions::Init::glorot ? Initializer::glorot(features, options_.units)
                                                                         : Initializer::small(features);
  std::vector<ParameterSpec> specs = {
      {.name = "weight",
       .shape = sparse ? Shape{features, options_.units} : Shape{options_.units, features},
       .init = init,
       .row_floats = sparse ? options_.units : 0}};
  if (options_.bias) {
    specs.push_back({.name = "bias", .shape = {options_.units}, .init = Initializer::zeros(), .decays = false});
  }
  return specs;
}

std::int64_t Dense::flops(ValueSpecs inputs) const {
  return 2 * expect_rows(*this, inputs).shape.elements() * options_.units;
}

std::vector<Cut> Dense::cuts(ValueSpecs inputs) const {
  return inputs[0].shape.rank() == 2 ? std::vector{Cut::outputs, Cut::inputs} : std::vector<Cut>{};
}

LayerPart Dense::part(Cut cut, ValueSpecs inputs, const Slice& slice) const {
  const bool sparse = inputs[0].kind == ValueKind::sparse;
  const bool by_outputs = cut == Cut::outputs;
  DenseOptions options = options_;
  LayerPart part;
  part.parameters.push_back({.name = "weight", .axis = by_outputs == sparse ? 1 : 0, .slice = slice});
  if (by_outputs) {
    options.units = slice.size();
  } else {
    options.bias = options.bias && slice.begin == 0;
    options.columns = sparse ? slice : Slice{};
  }
  if (options.bias) {
    part.parameters.push_back({.name = "bias", .axis = by_outputs ? 0 : -1, .slice = slice});
  }
  part.layer = std::make_shared<Dense>(options);
  return part;
}

LayerPtr Dense::fused_with(const Layer& next) const {
  if (options_.relu || dynamic_cast<const Relu*>(&next) == nullptr) {
    return nullptr;
  }
  DenseOptions options = options_;
  options.relu = true;
  return std::make_shared<Dense>(options);
}

std::unique_ptr<Kernel> Dense::compile(const Engine& /*engine*/, ValueLayouts inputs, Purpose purpose) const {
  const ValueSpec& input = inputs[0].spec;
  const ValueSpec result = output(std::span(&input, 1));
  if (input.kind == ValueKind::sparse) {
    return std::make_unique<SparseInputKernel>(result, options_, own_columns(options_, input), purpose);
  }
  return std::make_unique<DenseInputKernel>(result, options_, input.shape.dims().back(), purpose);
}

}  // namespace distbelief
