#include "graph/layers/l2_pool.h"

#include <algorithm>
#include <cmath>

#include "base/multiversion.h"
#include "base/parallel.h"

namespace distbelief {
namespace {

/// One channel of one image and where the window goes on it.
struct Plane {
  Window window;
  Extent image;
  Extent places;

  struct Range {
    std::int64_t begin;
    std::int64_t end;
  };
  /// Places whose tap `tap` falls inside the image, along one dimension.
  static Range inside(std::int64_t size, std::int64_t count, std::int64_t offset, std::int64_t stride) {
    const std::int64_t begin = offset >= 0 ? 0 : (-offset + stride - 1) / stride;
    const std::int64_t end = offset >= size ? 0 : (size - 1 - offset) / stride + 1;
    return {begin, std::max(begin, std::min(count, end))};
  }

  /// Calls row(input row + first column, output row, range of output columns) for each tap and output row.
  template <typename Row>
  void for_each_tap(const Row& row) const {
    for (std::int64_t ky = 0; ky < window.kernel.height; ++ky) {
      const std::int64_t y0 = ky * window.dilation.height - window.padding.height;
      const Range ys = inside(image.height, places.height, y0, window.stride.height);
      for (std::int64_t kx = 0; kx < window.kernel.width; ++kx) {
        const std::int64_t x0 = kx * window.dilation.width - window.padding.width;
        const Range xs = inside(image.width, places.width, x0, window.stride.width);
        for (std::int64_t y = ys.begin; y < ys.end; ++y) {
          row((y0 + y * window.stride.height) * image.width + x0, y * places.width, xs);
        }
      }
    }
  }
};

// The compiler makes vectors of strides that it knows.
template <typename Body>
inline __attribute__((always_inline)) void for_strided(std::int64_t stride, std::int64_t count, const Body& body) {
  if (stride == 1) {
    for (std::int64_t i = 0; i < count; ++i) {
      body(i, i);
    }
  } else if (stride == 2) {
    for (std::int64_t i = 0; i < count; ++i) {
      body(i, 2 * i);
    }
  } else {
    for (std::int64_t i = 0; i < count; ++i) {
      body(i, i * stride);
    }
  }
}

DISTBELIEF_MULTIVERSION void add_squares(const float* __restrict in, std::int64_t stride, float* __restrict out,
                                         std::int64_t count) {
  for_strided(
      stride,
      count, [=](std::int64_t i, std::int64_t at) __attribute__((always_inline)) { out[i] += in[at] * in[at]; });
}

DISTBELIEF_MULTIVERSION void take_roots(float* values, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    values[i] = std::sqrt(values[i]);
  }
}

DISTBELIEF_MULTIVERSION void add_scaled(const float* __restrict in, const float* __restrict ratio, std::int64_t stride,
                                        float* __restrict out, std::int64_t count) {
  for_strided(
      stride,
      count, [=](std::int64_t i, std::int64_t at) __attribute__((always_inline)) { out[at] += in[at] * ratio[i]; });
}

DISTBELIEF_MULTIVERSION void divide_safely(const float* gradient, const float* norm, float* out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] = norm[i] > 0 ? gradient[i] / norm[i] : 0.0F;
  }
}

class L2PoolKernel : public Kernel {
 public:
  L2PoolKernel(const Shape& image, const Shape& output, const Window& window)
      : Kernel(plain_value(output)),
        plane_{window, {image[2], image[3]}, {output[2], output[3]}},
        planes_(image[0] * image[1]),
        in_size_(image[2] * image[3]),
        out_size_(output[2] * output[3]) {
    traits_ = {.scratch_bytes = static_cast<std::size_t>(output.elements()) * sizeof(float),
               .backward_reads_inputs = true,
               .backward_reads_output = true};
  }

  void forward(const StepContext& /*step*/) override {
    for_planes([&](std::int64_t p) {
      const float* in = static_cast<const float*>(memory_.inputs[0]) + p * in_size_;
      float* out = memory_.output + p * out_size_;
      const std::int64_t step = plane_.window.stride.width;
      std::fill(out, out + out_size_, 0.0F);
      plane_.for_each_tap([&](std::int64_t from, std::int64_t to, Plane::Range xs) {
        add_squares(in + from + xs.begin * step, step, out + to + xs.begin, xs.end - xs.begin);
      });
      take_roots(out, out_size_);
    });
  }

  void backward(const StepContext& /*step*/) override {
    for_planes([&](std::int64_t p) {
      const float* in = static_cast<const float*>(memory_.inputs[0]) + p * in_size_;
      float* out = memory_.input_gradients[0] + p * in_size_;
      float* ratio = reinterpret_cast<float*>(memory_.scratch) + p * out_size_;
      const std::int64_t step = plane_.window.stride.width;
      divide_safely(memory_.output_gradient + p * out_size_, memory_.output + p * out_size_, ratio, out_size_);
      std::fill(out, out + in_size_, 0.0F);
      plane_.for_each_tap([&](std::int64_t from, std::int64_t to, Plane::Range xs) {
        const std::int64_t first = from + xs.begin * step;
        add_scaled(in + first, ratio + to + xs.begin, step, out + first, xs.end - xs.begin);
      });
    });
  }

 private:
  template <typename Body>
  void for_planes(const Body& body) const {
    parallel_for(planes_, std::max<std::int64_t>(1, 4096 / in_size_), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t p = begin; p < end; ++p) {
        body(p);
      }
    });
  }

  const Plane plane_;
  const std::int64_t planes_;
  const std::int64_t in_size_;
  const std::int64_t out_size_;
};

}  // namespace

ValueSpec L2Pool::output(ValueSpecs inputs) const {
  const Shape& image = expect_image(*this, inputs);
  const Extent places = window_.places(*this, image);
  return {{image[0], image[1], places.height, places.width}, ValueKind::dense};
}

std::int64_t L2Pool::flops(ValueSpecs inputs) const {
  return 2 * output(inputs).shape.elements() * window_.kernel.height * window_.kernel.width;
}

LayerPart L2Pool::part(Cut cut, ValueSpecs /*inputs*/, const Slice& /*slice*/) const {
  Window window = window_;
  if (cut == Cut::region) {
    window.padding.height = 0;
  }
  return {.layer = std::make_shared<L2Pool>(window)};
}

std::unique_ptr<Kernel> L2Pool::compile(const Engine& /*engine*/, ValueLayouts inputs, Purpose /*purpose*/) const {
  const ValueSpec& input = inputs[0].spec;
  return std::make_unique<L2PoolKernel>(input.shape, output(std::span(&input, 1)).shape, window_);
}

}  // namespace distbelief
