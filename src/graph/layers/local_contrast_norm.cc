#include "graph/layers/local_contrast_norm.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/multiversion.h"
#include "base/parallel.h"

namespace distbelief {
namespace {

// Loops over the pixels of one plane (or of one image, channel after channel).

DISTBELIEF_MULTIVERSION void add_plane(const float* __restrict x, float* __restrict sum, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    sum[i] += x[i];
  }
}

DISTBELIEF_MULTIVERSION void add_product(const float* __restrict a, const float* __restrict b, float* __restrict sum,
                                         std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    sum[i] += a[i] * b[i];
  }
}

DISTBELIEF_MULTIVERSION void add_square(const float* __restrict x, float* __restrict sum, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    sum[i] += x[i] * x[i];
  }
}

DISTBELIEF_MULTIVERSION void subtract_plane(const float* a, const float* __restrict b, float* out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] = a[i] - b[i];
  }
}

DISTBELIEF_MULTIVERSION void multiply_plane(const float* __restrict by, float* __restrict x, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    x[i] *= by[i];
  }
}

DISTBELIEF_MULTIVERSION void divide_plane(const float* __restrict by, float* __restrict x, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    x[i] /= by[i];
  }
}

/// x becomes max(floor, sqrt(x)).
DISTBELIEF_MULTIVERSION void floored_root(float floor, float* x, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    x[i] = std::max(floor, std::sqrt(x[i]));
  }
}

/// out = gradient / divisor + 2·y·spread, where y = output·divisor.
DISTBELIEF_MULTIVERSION void centred_gradient(const float* __restrict gradient, const float* __restrict output,
                                              const float* __restrict divisor, const float* __restrict spread,
                                              float* __restrict out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] = gradient[i] / divisor[i] + 2.0F * output[i] * divisor[i] * spread[i];
  }
}

/// From Σ gradient·output to the gradient of mean(y²): −Σ / (2·divisor²), and nothing where the floor was taken.
DISTBELIEF_MULTIVERSION void power_gradient(float floor, const float* __restrict divisor, float* __restrict x,
                                            std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    x[i] = divisor[i] > floor ? -x[i] / (2.0F * divisor[i] * divisor[i]) : 0.0F;
  }
}

/// Sums over windows of one plane, cut off at the edges. Its own adjoint, since the window is symmetric.
class WindowSum {
 public:
  WindowSum(Extent image, Extent kernel) : image_(image), reach_{kernel.height / 2, kernel.width / 2} {}

  /// `x` becomes its window sums; `spare` is a plane of garbage.
  void operator()(float* x, float* spare) const {
    const std::int64_t width = image_.width;
    for (std::int64_t y = 0; y < image_.height; ++y) {
      std::fill(spare + y * width, spare + (y + 1) * width, 0.0F);
      for (std::int64_t shift = -reach_.width; shift <= reach_.width; ++shift) {
        const std::int64_t begin = std::max<std::int64_t>(0, -shift);
        const std::int64_t end = std::min(width, width - shift);
        if (begin < end) {
          add_plane(x + y * width + begin + shift, spare + y * width + begin, end - begin);
        }
      }
    }
    for (std::int64_t y = 0; y < image_.height; ++y) {
      std::fill(x + y * width, x + (y + 1) * width, 0.0F);
      const std::int64_t last = std::min(image_.height - 1, y + reach_.height);
      for (std::int64_t from = std::max<std::int64_t>(0, y - reach_.height); from <= last; ++from) {
        add_plane(spare + from * width, x + y * width, width);
      }
    }
  }

  /// How many pixels the window holds at each place.
  std::vector<float> counts() const {
    std::vector<float> result;
    const auto inside = [](std::int64_t at, std::int64_t reach, std::int64_t size) {
      return std::min(size - 1, at + reach) - std::max<std::int64_t>(0, at - reach) + 1;
    };
    for (std::int64_t y = 0; y < image_.height; ++y) {
      for (std::int64_t x = 0; x < image_.width; ++x) {
        result.push_back(
            static_cast<float>(inside(y, reach_.height, image_.height) * inside(x, reach_.width, image_.width)));
      }
    }
    return result;
  }

 private:
  Extent image_;
  Extent reach_;
};

class LocalContrastNormKernel : public Kernel {
 public:
  LocalContrastNormKernel(const ValueLayout& value, const LocalContrastNormOptions& options)
      : Kernel(value),
        floor_(options.floor),
        images_(value.spec.shape[0]),
        channels_(value.spec.shape[1]),
        pixels_(value.spec.shape[2] * value.spec.shape[3]),
        window_sum_({value.spec.shape[2], value.spec.shape[3]}, options.kernel),
        shares_(window_sum_.counts()) {
    for (float& share : shares_) {
      share = 1.0F / (share * static_cast<float>(channels_));
    }
    const auto plane = static_cast<std::size_t>(images_ * pixels_) * sizeof(float);
    traits_ = {.workspace_bytes = plane,
               .scratch_bytes = 2 * plane,
               .backward_reads_inputs = false,
               .backward_reads_output = true,
               .forward_in_place = true};
  }

  void forward(const StepContext& /*step*/) override {
    for_images([&](std::int64_t image, float* mean, float* spare) {
      const float* in = static_cast<const float*>(memory_.inputs[0]) + image * channels_ * pixels_;
      float* out = memory_.output + image * channels_ * pixels_;
      float* divisor = divisors(image);
      std::fill(mean, mean + pixels_, 0.0F);
      for_channels(in, [&](const float* x) { add_plane(x, mean, pixels_); });
      window_sum_(mean, spare);
      multiply_plane(shares_.data(), mean, pixels_);
      std::fill(divisor, divisor + pixels_, 0.0F);
      for (std::int64_t c = 0; c < channels_; ++c) {
        subtract_plane(in + c * pixels_, mean, out + c * pixels_, pixels_);
        add_square(out + c * pixels_, divisor, pixels_);
      }
      window_sum_(divisor, spare);
      multiply_plane(shares_.data(), divisor, pixels_);
      floored_root(floor_, divisor, pixels_);
      for_channels(out, [&](float* y) { divide_plane(divisor, y, pixels_); });
    });
  }

  void backward(const StepContext& /*step*/) override {
    for_images([&](std::int64_t image, float* plane, float* spare) {
      const std::int64_t first = image * channels_ * pixels_;
      const float* gradient = memory_.output_gradient + first;
      const float* output = memory_.output + first;
      float* out = memory_.input_gradients[0] + first;
      const float* divisor = divisors(image);
      // Through the divisor: what each window's contrast is worth, given back to the pixels of the window.
      std::fill(plane, plane + pixels_, 0.0F);
      for (std::int64_t c = 0; c < channels_; ++c) {
        add_product(gradient + c * pixels_, output + c * pixels_, plane, pixels_);
      }
      power_gradient(floor_, divisor, plane, pixels_);
      multiply_plane(shares_.data(), plane, pixels_);
      window_sum_(plane, spare);
      for (std::int64_t c = 0; c < channels_; ++c) {
        const std::int64_t at = c * pixels_;
        centred_gradient(gradient + at, output + at, divisor, plane, out + at, pixels_);
      }
      // Through the mean.
      std::fill(plane, plane + pixels_, 0.0F);
      for_channels(out, [&](const float* y) { add_plane(y, plane, pixels_); });
      multiply_plane(shares_.data(), plane, pixels_);
      window_sum_(plane, spare);
      for_channels(out, [&](float* y) { subtract_plane(y, plane, y, pixels_); });
    });
  }

 private:
  float* divisors(std::int64_t image) const { return reinterpret_cast<float*>(memory_.workspace) + image * pixels_; }

  template <typename Float, typename Body>
  void for_channels(Float* image, const Body& body) const {
    for (std::int64_t c = 0; c < channels_; ++c) {
      body(image + c * pixels_);
    }
  }

  /// Calls body(image, a plane of scratch, another one).
  template <typename Body>
  void for_images(const Body& body) const {
    parallel_for(images_, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t image = begin; image < end; ++image) {
        float* planes = reinterpret_cast<float*>(memory_.scratch) + 2 * image * pixels_;
        body(image, planes, planes + pixels_);
      }
    });
  }

  const float floor_;
  const std::int64_t images_;
  const std::int64_t channels_;
  const std::int64_t pixels_;
  const WindowSum window_sum_;
  std::vector<float> shares_;  ///< 1 / (numbers in the window), at each pixel
};

}  // namespace

LocalContrastNorm::LocalContrastNorm(LocalContrastNormOptions options) : options_(options) {
  const Extent& kernel = options.kernel;
  if (kernel.height < 1 || kernel.width < 1 || kernel.height % 2 == 0 || kernel.width % 2 == 0 ||
      !(options.floor > 0)) {
    throw InputError(fmt::format("local_contrast_norm needs a kernel of odd sizes and a floor > 0, got {}x{} and {}",
                                 kernel.height, kernel.width, options.floor));
  }
}

ValueSpec LocalContrastNorm::output(ValueSpecs inputs) const {
  expect_image(*this, inputs);
  return inputs[0];
}

std::int64_t LocalContrastNorm::flops(ValueSpecs inputs) const {
  const Shape& image = inputs[0].shape;
  return 5 * image.elements() + 2 * image[0] * image[2] * image[3] * (options_.kernel.height + options_.kernel.width);
}

std::unique_ptr<Kernel> LocalContrastNorm::compile(const Engine& /*engine*/, ValueLayouts inputs,
                                                   Purpose /*purpose*/) const {
  return std::make_unique<LocalContrastNormKernel>(inputs[0], options_);
}

}  // namespace distbelief
