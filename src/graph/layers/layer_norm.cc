#include "graph/layers/layer_norm.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/multiversion.h"
#include "base/parallel.h"
#include "tensor/vector_ops.h"

namespace distbelief {
namespace {

enum LayerNormParameter : std::size_t { kRowScale, kRowShift };

constexpr int kPartialSums = 16;

/// Sums of many floats by lanes, so that the compiler can use vectors and the order is always the same.
float add_lanes(float (&lanes)[kPartialSums]) {
  for (int width = kPartialSums / 2; width > 0; width /= 2) {
    for (int lane = 0; lane < width; ++lane) {
      lanes[lane] += lanes[lane + width];
    }
  }
  return lanes[0];
}

DISTBELIEF_MULTIVERSION float sum(const float* x, std::int64_t count) {
  float lanes[kPartialSums] = {};
  std::int64_t i = 0;
  for (; i + kPartialSums <= count; i += kPartialSums) {
    for (int lane = 0; lane < kPartialSums; ++lane) {
      lanes[lane] += x[i + lane];
    }
  }
  for (; i < count; ++i) {
    lanes[i % kPartialSums] += x[i];
  }
  return add_lanes(lanes);
}

DISTBELIEF_MULTIVERSION float sum_of_squares(const float* x, float mean, std::int64_t count) {
  float lanes[kPartialSums] = {};
  std::int64_t i = 0;
  for (; i + kPartialSums <= count; i += kPartialSums) {
    for (int lane = 0; lane < kPartialSums; ++lane) {
      const float distance = x[i + lane] - mean;
      lanes[lane] += distance * distance;
    }
  }
  for (; i < count; ++i) {
    lanes[i % kPartialSums] += (x[i] - mean) * (x[i] - mean);
  }
  return add_lanes(lanes);
}

DISTBELIEF_MULTIVERSION void normalize_row(const float* x, float mean, float inverse, const float* __restrict scale,
                                           const float* __restrict shift, float* out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] = (x[i] - mean) * inverse * scale[i] + shift[i];
  }
}

/// Σ a·b·(x − mean).
DISTBELIEF_MULTIVERSION float centred_product(const float* a, const float* b, const float* x, float mean,
                                              std::int64_t count) {
  float lanes[kPartialSums] = {};
  std::int64_t i = 0;
  for (; i + kPartialSums <= count; i += kPartialSums) {
    for (int lane = 0; lane < kPartialSums; ++lane) {
      lanes[lane] += a[i + lane] * b[i + lane] * (x[i + lane] - mean);
    }
  }
  for (; i < count; ++i) {
    lanes[i % kPartialSums] += a[i] * b[i] * (x[i] - mean);
  }
  return add_lanes(lanes);
}

DISTBELIEF_MULTIVERSION void finish_gradient(const float* x, float mean, float inverse, const float* scale,
                                             float offset, float slope, const float* gradient, float* out,
                                             std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] = inverse * (gradient[i] * scale[i] - offset - (x[i] - mean) * slope);
  }
}

/// With h = gradient·scale and n = (x − mean)·inverse: input gradient = inverse·(h − mean(h) − n·mean(h·n)).
void row_gradient(const float* x, float mean, float inverse, const float* scale, const float* gradient, float* out,
                  std::int64_t count) {
  const float share = 1.0F / static_cast<float>(count);
  const float offset = dot(gradient, scale, count) * share;
  const float slope = centred_product(gradient, scale, x, mean, count) * inverse * inverse * share;
  finish_gradient(x, mean, inverse, scale, offset, slope, gradient, out, count);
}

DISTBELIEF_MULTIVERSION void add_to_parameters(const float* __restrict x, float mean, float inverse,
                                               const float* __restrict gradient, float* __restrict scale,
                                               float* __restrict shift, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    scale[i] += gradient[i] * (x[i] - mean) * inverse;
    shift[i] += gradient[i];
  }
}

class LayerNormKernel : public Kernel {
 public:
  LayerNormKernel(const ValueLayout& value, std::int64_t width, float epsilon)
      : Kernel(value),
        width_(width),
        rows_(value.spec.shape.elements() / width),
        parts_(std::min<std::int64_t>(rows_, 16)),
        epsilon_(epsilon) {
    traits_.workspace_bytes = static_cast<std::size_t>(2 * rows_) * sizeof(float);
    traits_.scratch_bytes = static_cast<std::size_t>(2 * parts_ * width_) * sizeof(float);
    traits_.forward_in_place = true;
    traits_.backward_in_place = true;
  }

  void forward(const StepContext& /*step*/) override {
    parallel_for(rows_, std::max<std::int64_t>(1, 4096 / width_), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        const float* x = input(r);
        const float mean = sum(x, width_) / static_cast<float>(width_);
        const float variance = sum_of_squares(x, mean, width_) / static_cast<float>(width_);
        means()[r] = mean;
        inverses()[r] = 1.0F / std::sqrt(variance + epsilon_);
        normalize_row(x, mean, inverses()[r], memory_.parameters[kRowScale], memory_.parameters[kRowShift],
                      memory_.output + r * width_, width_);
      }
    });
  }

  void backward(const StepContext& /*step*/) override {
    // A row is read once for both kinds of gradient. Parts are as many for any number of threads, and added in order.
    parallel_for(parts_, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t part = begin; part < end; ++part) {
        backward_part(part, rows_ * part / parts_, rows_ * (part + 1) / parts_);
      }
    });
    for (const LayerNormParameter parameter : {kRowScale, kRowShift}) {
      sum_rows(reinterpret_cast<const float*>(memory_.scratch) + parameter * parts_ * width_, parts_, width_,
               memory_.parameter_gradients[parameter]);
    }
  }

 private:
  void backward_part(std::int64_t part, std::int64_t begin, std::int64_t end) const {
    float* scale = reinterpret_cast<float*>(memory_.scratch) + part * width_;
    float* shift = scale + parts_ * width_;
    std::fill(scale, scale + width_, 0.0F);
    std::fill(shift, shift + width_, 0.0F);
    for (std::int64_t r = begin; r < end; ++r) {
      const float* gradient = memory_.output_gradient + r * width_;
      add_to_parameters(input(r), means()[r], inverses()[r], gradient, scale, shift, width_);
      if (memory_.input_gradients[0] != nullptr) {
        row_gradient(input(r), means()[r], inverses()[r], memory_.parameters[kRowScale], gradient,
                     memory_.input_gradients[0] + r * width_, width_);
      }
    }
  }

  const float* input(std::int64_t row) const { return static_cast<const float*>(memory_.inputs[0]) + row * width_; }
  float* means() const { return reinterpret_cast<float*>(memory_.workspace); }
  float* inverses() const { return means() + rows_; }

  const std::int64_t width_;
  const std::int64_t rows_;
  const std::int64_t parts_;  ///< groups of rows whose parameter gradients are added up apart
  const float epsilon_;
};

/// The dimensions that are normalised together.
Shape normalized(const Shape& shape, int axes) {
  return Shape(std::vector<std::int64_t>(shape.dims().end() - axes, shape.dims().end()));
}

}  // namespace

ValueSpec LayerNorm::output(ValueSpecs inputs) const {
  expect_dense_inputs(*this, inputs, 1);
  const int rank = inputs[0].shape.rank();
  if (options_.axes < 1 || options_.axes >= rank) {
    throw ShapeError(fmt::format("layer_norm: {} axes are not in 1 to {}, the dimensions of a sample of {}",
                                 options_.axes, rank - 1, inputs[0].shape.text()));
  }
  return inputs[0];
}

std::vector<ParameterSpec> LayerNorm::parameters(ValueSpecs inputs) const {
  const Shape shape = normalized(inputs[0].shape, options_.axes);
  return {{.name = "scale", .shape = shape, .init = Initializer::ones(), .decays = false},
          {.name = "shift", .shape = shape, .init = Initializer::zeros(), .decays = false}};
}

std::int64_t LayerNorm::flops(ValueSpecs inputs) const { return 7 * inputs[0].shape.elements(); }

std::unique_ptr<Kernel> LayerNorm::compile(const Engine& /*engine*/, ValueLayouts inputs, Purpose /*purpose*/) const {
  const std::int64_t width = normalized(inputs[0].spec.shape, options_.axes).elements();
  return std::make_unique<LayerNormKernel>(inputs[0], width, options_.epsilon);
}

}  // namespace distbelief
