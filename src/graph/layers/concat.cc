#include "graph/layers/concat.h"

#include <algorithm>

#include "base/error.h"
#include "base/parallel.h"

namespace distbelief {
namespace {

class ConcatKernel : public Kernel {
 public:
  ConcatKernel(const Shape& output, ValueLayouts inputs, int axis) : Kernel(plain_value(output)) {
    for (int d = 0; d < axis; ++d) {
      blocks_ *= output[d];
    }
    stride_ = output.elements() / blocks_;
    for (const ValueLayout& input : inputs) {
      widths_.push_back(input.spec.shape.elements() / blocks_);
    }
    traits_.backward_reads_inputs = false;
  }

  void forward(const StepContext& /*step*/) override {
    for_blocks([&](std::int64_t block) {
      float* out = memory_.output + block * stride_;
      for (std::size_t i = 0; i < widths_.size(); ++i) {
        const float* in = static_cast<const float*>(memory_.inputs[i]) + block * widths_[i];
        out = std::copy(in, in + widths_[i], out);
      }
    });
  }

  void backward(const StepContext& /*step*/) override {
    for_blocks([&](std::int64_t block) {
      const float* gradient = memory_.output_gradient + block * stride_;
      for (std::size_t i = 0; i < widths_.size(); ++i) {
        if (memory_.input_gradients[i] != nullptr) {
          std::copy(gradient, gradient + widths_[i], memory_.input_gradients[i] + block * widths_[i]);
        }
        gradient += widths_[i];
      }
    });
  }

 private:
  template <typename Body>
  void for_blocks(const Body& body) const {
    parallel_for(blocks_, std::max<std::int64_t>(1, 16384 / stride_), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t block = begin; block < end; ++block) {
        body(block);
      }
    });
  }

  std::int64_t blocks_ = 1;           ///< product of the dimensions before the axis
  std::int64_t stride_ = 0;           ///< floats of one block of the output
  std::vector<std::int64_t> widths_;  ///< floats that each input gives to a block
};

}  // namespace

ValueSpec Concat::output(ValueSpecs inputs) const {
  if (inputs.empty()) {
    throw ShapeError("concat takes at least one input, got none");
  }
  expect_dense_inputs(*this, inputs, inputs.size());
  const Shape& first = inputs[0].shape;
  if (axis_ < 1 || axis_ >= first.rank()) {
    throw ShapeError(
        fmt::format("concat: axis {} is not one of dimensions 1 to {} of {}", axis_, first.rank() - 1, first.text()));
  }
  std::vector<std::int64_t> dims = first.dims();
  const auto axis = static_cast<std::size_t>(axis_);
  for (const ValueSpec& input : inputs.subspan(1)) {
    std::vector<std::int64_t> fitting = input.shape.dims();
    if (fitting.size() == dims.size()) {
      fitting[axis] = first[axis_];
    }
    if (fitting != first.dims()) {
      throw ShapeError(
          fmt::format("concat: {} and {} differ in more than dimension {}", first.text(), input.shape.text(), axis_));
    }
    dims[axis] += input.shape[axis_];
  }
  return {Shape(std::move(dims)), ValueKind::dense};
}

std::unique_ptr<Kernel> Concat::compile(const Engine& /*engine*/, ValueLayouts inputs, Purpose /*purpose*/) const {
  std::vector<ValueSpec> specs;
  for (const ValueLayout& input : inputs) {
    specs.push_back(input.spec);
  }
  return std::make_unique<ConcatKernel>(output(specs).shape, inputs, axis_);
}

}  // namespace distbelief
