#include "learned_slope.h"

#include <algorithm>

#include "base/error.h"

using namespace distbelief;

namespace {

class LearnedSlopeKernel : public Kernel {
 public:
  explicit LearnedSlopeKernel(const ValueLayout& value)
      : Kernel(value), rows_(value.spec.shape[0]), features_(value.spec.shape[1]) {
    traits_.backward_reads_inputs = true;  // it needs the sign, and the value for the slope's gradient
  }

  void forward(const StepContext& /*step*/) override {
    const auto* x = static_cast<const float*>(memory_.inputs[0]);
    const float* slope = memory_.parameters[0];
    for (std::int64_t i = 0; i < rows_ * features_; ++i) {
      memory_.output[i] = x[i] > 0 ? x[i] : slope[i % features_] * x[i];
    }
  }

  void backward(const StepContext& /*step*/) override {
    const auto* x = static_cast<const float*>(memory_.inputs[0]);
    const float* slope = memory_.parameters[0];
    const float* gradient = memory_.output_gradient;
    if (float* input_gradient = memory_.input_gradients[0]; input_gradient != nullptr) {
      for (std::int64_t i = 0; i < rows_ * features_; ++i) {
        input_gradient[i] = x[i] > 0 ? gradient[i] : slope[i % features_] * gradient[i];
      }
    }
    if (float* slope_gradient = memory_.parameter_gradients[0]; slope_gradient != nullptr) {  // null when frozen
      std::fill_n(slope_gradient, features_, 0.0F);
      for (std::int64_t i = 0; i < rows_ * features_; ++i) {
        slope_gradient[i % features_] += x[i] > 0 ? 0.0F : x[i] * gradient[i];
      }
    }
  }

 private:
  const std::int64_t rows_;
  const std::int64_t features_;
};

}  // namespace

ValueSpec LearnedSlope::output(ValueSpecs inputs) const {
  expect_dense_inputs(*this, inputs, 1);
  if (inputs[0].shape.rank() != 2) {
    throw ShapeError("learned_slope: expected rows of features, got " + inputs[0].shape.text());
  }
  return inputs[0];
}

std::vector<ParameterSpec> LearnedSlope::parameters(ValueSpecs inputs) const {
  return {{.name = "slope", .shape = {inputs[0].shape[1]}, .init = Initializer::zeros(), .decays = false}};
}

std::unique_ptr<Kernel> LearnedSlope::compile(const Engine& /*engine*/, ValueLayouts inputs,
                                              Purpose /*purpose*/) const {
  return std::make_unique<LearnedSlopeKernel>(inputs[0]);
}
