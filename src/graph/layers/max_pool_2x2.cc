#include "graph/layers/max_pool_2x2.h"

#include <cstdint>
#include <cstring>

#include "base/multiversion.h"
#include "base/parallel.h"

namespace distbelief {
namespace {

// Eight channels of one pixel lie together; the compiler turns these types into whatever the machine has.
constexpr std::int64_t kBlock = 8;
using Pixel = float __attribute__((vector_size(32)));
using Choice = std::int32_t __attribute__((vector_size(32)));
using PackedChoice = std::uint8_t __attribute__((vector_size(8)));

// By reference: vectors wider than the baseline's do not travel in registers between functions.
__attribute__((always_inline)) inline void load(const float* from, Pixel& pixel) {
  std::memcpy(&pixel, from, sizeof pixel);
}

__attribute__((always_inline)) inline void store(float* to, const Pixel& pixel) {
  std::memcpy(to, &pixel, sizeof pixel);
}

// No window element is number 4: where a ReLU clamps, nobody gets the gradient.
constexpr std::int32_t kNobody = 4;

/// One row of windows: `width` of them from the two input rows that begin at `above` and `below`.
DISTBELIEF_MULTIVERSION void pool_row(const float* above, const float* below, std::int64_t width, bool clamp,
                                      float* out, std::uint8_t* winners) {
  for (std::int64_t x = 0; x < width; ++x) {
    Pixel pixels[4];
    load(above + 2 * x * kBlock, pixels[0]);
    load(above + (2 * x + 1) * kBlock, pixels[1]);
    load(below + 2 * x * kBlock, pixels[2]);
    load(below + (2 * x + 1) * kBlock, pixels[3]);
    Pixel best = pixels[0];
    Choice winner = {};
    for (std::int32_t i = 1; i < 4; ++i) {
      const Choice larger = (pixels[i] > best) | (pixels[i] != pixels[i]);  // a NaN wins, so that it is seen
      const Choice number = {i, i, i, i, i, i, i, i};
      best = larger ? pixels[i] : best;
      winner = larger ? number : winner;
    }
    if (clamp) {
      const Pixel zero = {};
      const Choice nobody = {kNobody, kNobody, kNobody, kNobody, kNobody, kNobody, kNobody, kNobody};
      const Choice clamped = best <= zero;
      winner = clamped ? nobody : winner;
      best = clamped ? zero : best;
    }
    store(out + x * kBlock, best);
    if (winners != nullptr) {
      const PackedChoice packed = __builtin_convertvector(winner, PackedChoice);
      std::memcpy(winners + x * kBlock, &packed, sizeof packed);
    }
  }
}

DISTBELIEF_MULTIVERSION void unpool_row(const float* gradient, const std::uint8_t* winners, std::int64_t width,
                                        float* above, float* below) {
  for (std::int64_t x = 0; x < width; ++x) {
    Pixel given;
    load(gradient + x * kBlock, given);
    PackedChoice packed;
    std::memcpy(&packed, winners + x * kBlock, sizeof packed);
    const Choice winner = __builtin_convertvector(packed, Choice);
    const Pixel zero = {};
    store(above + 2 * x * kBlock, winner == 0 ? given : zero);
    store(above + (2 * x + 1) * kBlock, winner == 1 ? given : zero);
    store(below + 2 * x * kBlock, winner == 2 ? given : zero);
    store(below + (2 * x + 1) * kBlock, winner == 3 ? given : zero);
  }
}

class MaxPool2x2Kernel : public Kernel {
 public:
  MaxPool2x2Kernel(const ValueLayout& input, ValueLayout output, bool relu, Purpose purpose)
      : Kernel(std::move(output)), relu_(relu), training_(purpose == Purpose::training) {
    const Shape& image = input.spec.shape;
    planes_ = image[0] * ((image[1] + kBlock - 1) / kBlock);
    height_ = image[2];
    width_ = image[3];
    const std::int64_t outputs = output_.stored_floats();
    traits_ = {.workspace_bytes = training_ ? static_cast<std::size_t>(outputs) : 0, .backward_reads_inputs = false};
  }

  void forward(const StepContext& /*step*/) override {
    const auto* in = static_cast<const float*>(memory_.inputs[0]);
    auto* winners = training_ ? reinterpret_cast<std::uint8_t*>(memory_.workspace) : nullptr;
    for_each_row([&](std::int64_t in_row, std::int64_t out_row, std::int64_t width) {
      const float* above = in + in_row;
      pool_row(above, above + width_ * kBlock, width, relu_, memory_.output + out_row,
               winners == nullptr ? nullptr : winners + out_row);
    });
  }

  void backward(const StepContext& /*step*/) override {
    float* out = memory_.input_gradients[0];
    if (height_ % 2 != 0 || width_ % 2 != 0) {
      std::memset(out, 0, static_cast<std::size_t>(planes_ * height_ * width_ * kBlock) * sizeof(float));
    }
    const auto* winners = reinterpret_cast<const std::uint8_t*>(memory_.workspace);
    for_each_row([&](std::int64_t in_row, std::int64_t out_row, std::int64_t width) {
      float* above = out + in_row;
      unpool_row(memory_.output_gradient + out_row, winners + out_row, width, above, above + width_ * kBlock);
    });
  }

 private:
  /// Calls visit(first input row, output row, windows) with places in floats, over all planes.
  template <typename Visit>
  void for_each_row(const Visit& visit) const {
    const std::int64_t rows = height_ / 2;
    const std::int64_t width = width_ / 2;
    parallel_for(planes_, 4, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t plane = begin; plane < end; ++plane) {
        for (std::int64_t y = 0; y < rows; ++y) {
          visit((plane * height_ + 2 * y) * width_ * kBlock, (plane * rows + y) * width * kBlock, width);
        }
      }
    });
  }

  const bool relu_;
  const bool training_;
  std::int64_t planes_ = 0;  ///< images × blocks of channels
  std::int64_t height_ = 0;
  std::int64_t width_ = 0;
};

dnnl::memory::desc blocked_layout(const Shape& shape) {
  return {dnnl::memory::dims(shape.dims().begin(), shape.dims().end()), dnnl::memory::data_type::f32,
          dnnl::memory::format_tag::nChw8c};
}

}  // namespace

std::unique_ptr<Kernel> compile_max_pool_2x2(const ValueLayout& input, const Shape& output, const Window& window,
                                             const PoolingOptions& options, Purpose purpose) {
  const Extent two = {2, 2};
  if (options.kind != PoolingOptions::Kind::max || window.kernel != two || window.stride != two ||
      window.padding != Extent{0, 0} || window.dilation != Extent{1, 1} ||
      input.layout != blocked_layout(input.spec.shape)) {
    return nullptr;
  }
  ValueLayout result{{output, ValueKind::dense}, blocked_layout(output)};
  return std::make_unique<MaxPool2x2Kernel>(input, std::move(result), options.relu, purpose);
}

}  // namespace distbelief
