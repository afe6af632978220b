#include "graph/layers/local_response_norm.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/multiversion.h"
#include "base/parallel.h"

namespace distbelief {
namespace {

// All loops run along the pixels of one channel. `base` is k + alpha / size · Σ x².

DISTBELIEF_MULTIVERSION void add_squares(const float* __restrict x, float factor, float* __restrict sums,
                                         std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    sums[i] += factor * x[i] * x[i];
  }
}

DISTBELIEF_MULTIVERSION void add_products(const float* __restrict x, float* __restrict sums, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    sums[i] += x[i];
  }
}

/// out = x · base^−beta. The usual powers need no logarithm.
DISTBELIEF_MULTIVERSION void scale_by_power(const float* __restrict x, const float* __restrict base, float beta,
                                            float* __restrict out, std::int64_t count) {
  if (beta == 0.75F) {
    for (std::int64_t i = 0; i < count; ++i) {
      const float root = std::sqrt(base[i]);
      out[i] = x[i] / (root * std::sqrt(root));
    }
  } else if (beta == 0.5F) {
    for (std::int64_t i = 0; i < count; ++i) {
      out[i] = x[i] / std::sqrt(base[i]);
    }
  } else {
    for (std::int64_t i = 0; i < count; ++i) {
      out[i] = x[i] * std::pow(base[i], -beta);
    }
  }
}

DISTBELIEF_MULTIVERSION void product_over_base(const float* __restrict gradient, const float* __restrict output,
                                               const float* __restrict base, float* __restrict out,
                                               std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] = gradient[i] * output[i] / base[i];
  }
}

DISTBELIEF_MULTIVERSION void subtract_product(const float* __restrict x, const float* __restrict sums, float factor,
                                              float* __restrict out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] -= factor * x[i] * sums[i];
  }
}

class LocalResponseNormKernel : public Kernel {
 public:
  LocalResponseNormKernel(const ValueLayout& value, const LocalResponseNormOptions& options)
      : Kernel(value),
        options_(options),
        images_(value.spec.shape[0]),
        channels_(value.spec.shape[1]),
        pixels_(value.spec.shape[2] * value.spec.shape[3]) {
    const auto bytes = static_cast<std::size_t>(value.spec.shape.elements()) * sizeof(float);
    traits_ = {.workspace_bytes = bytes,
               .scratch_bytes = bytes + static_cast<std::size_t>(images_ * pixels_) * sizeof(float),
               .backward_reads_inputs = true,
               .backward_reads_output = true};
  }

  void forward(const StepContext& /*step*/) override {
    const float factor = options_.alpha / static_cast<float>(options_.size);
    for_images([&](std::int64_t image) {
      const float* in = static_cast<const float*>(memory_.inputs[0]) + image * channels_ * pixels_;
      float* base = reinterpret_cast<float*>(memory_.workspace) + image * channels_ * pixels_;
      float* out = memory_.output + image * channels_ * pixels_;
      for (std::int64_t c = 0; c < channels_; ++c) {
        float* sums = base + c * pixels_;
        std::fill(sums, sums + pixels_, options_.k);
        const std::int64_t last = std::min(channels_ - 1, c + after());
        for (std::int64_t j = std::max<std::int64_t>(0, c - before()); j <= last; ++j) {
          add_squares(in + j * pixels_, factor, sums, pixels_);
        }
        scale_by_power(in + c * pixels_, sums, options_.beta, out + c * pixels_, pixels_);
      }
    });
  }

  void backward(const StepContext& /*step*/) override {
    // d(out_j)/d(x_c) = base_c^−beta [j = c] − 2·alpha·beta/size · x_c · out_j / base_j, for j whose window holds c.
    const float factor = 2.0F * options_.alpha * options_.beta / static_cast<float>(options_.size);
    for_images([&](std::int64_t image) {
      const std::int64_t first = image * channels_ * pixels_;
      const float* in = static_cast<const float*>(memory_.inputs[0]) + first;
      const float* base = reinterpret_cast<const float*>(memory_.workspace) + first;
      const float* gradient = memory_.output_gradient + first;
      float* out = memory_.input_gradients[0] + first;
      float* products = reinterpret_cast<float*>(memory_.scratch) + image * (channels_ + 1) * pixels_;
      float* sums = products + channels_ * pixels_;
      product_over_base(gradient, memory_.output + first, base, products, channels_ * pixels_);
      scale_by_power(gradient, base, options_.beta, out, channels_ * pixels_);
      for (std::int64_t c = 0; c < channels_; ++c) {
        std::fill(sums, sums + pixels_, 0.0F);
        const std::int64_t last = std::min(channels_ - 1, c + before());
        for (std::int64_t j = std::max<std::int64_t>(0, c - after()); j <= last; ++j) {
          add_products(products + j * pixels_, sums, pixels_);
        }
        subtract_product(in + c * pixels_, sums, factor, out + c * pixels_, pixels_);
      }
    });
  }

 private:
  std::int64_t before() const { return options_.size / 2; }
  std::int64_t after() const { return (options_.size - 1) / 2; }

  template <typename Body>
  void for_images(const Body& body) const {
    parallel_for(images_, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t image = begin; image < end; ++image) {
        body(image);
      }
    });
  }

  const LocalResponseNormOptions options_;
  const std::int64_t images_;
  const std::int64_t channels_;
  const std::int64_t pixels_;
};

}  // namespace

LocalResponseNorm::LocalResponseNorm(LocalResponseNormOptions options) : options_(options) {
  if (options.size < 1 || !(options.k > 0) || !(options.alpha >= 0)) {
    throw InputError(fmt::format("local_response_norm needs size >= 1, k > 0 and alpha >= 0, got {}, {} and {}",
                                 options.size, options.k, options.alpha));
  }
}

ValueSpec LocalResponseNorm::output(ValueSpecs inputs) const {
  expect_image(*this, inputs);
  return inputs[0];
}

std::int64_t LocalResponseNorm::flops(ValueSpecs inputs) const {
  return inputs[0].shape.elements() * (3 * options_.size + 3);
}

std::unique_ptr<Kernel> LocalResponseNorm::compile(const Engine& /*engine*/, ValueLayouts inputs,
                                                   Purpose /*purpose*/) const {
  return std::make_unique<LocalResponseNormKernel>(inputs[0], options_);
}

}  // namespace distbelief
