#include "graph/layers/max_pool_2x2.h"

#include <cstdint>
#include <cstring>

#include "base/multiversion.h"
#include "base/parallel.h"
#include "graph/layers/channel_block.h"

namespace distbelief {
namespace {

using Choice = std::int32_t __attribute__((vector_size(32)));
using PackedChoice = std::uint8_t __attribute__((vector_size(8)));

// No window element is number 4: where a ReLU clamps, nobody gets the gradient.
constexpr std::int32_t kNobody = 4;

/// One row of windows: `width` of them from the two input rows that begin at `above` and `below`.
DISTBELIEF_MULTIVERSION void pool_row(const float* above, const float* below, std::int64_t width, bool clamp,
                                      float* out, std::uint8_t* winners) {
  for (std::int64_t x = 0; x < width; ++x) {
    ChannelBlock pixels[4];
    load(above + 2 * x * kChannelBlock, pixels[0]);
    load(above + (2 * x + 1) * kChannelBlock, pixels[1]);
    load(below + 2 * x * kChannelBlock, pixels[2]);
    load(below + (2 * x + 1) * kChannelBlock, pixels[3]);
    ChannelBlock best = pixels[0];
    Choice winner = {};
    for (std::int32_t i = 1; i < 4; ++i) {
      const Choice larger = (pixels[i] > best) | (pixels[i] != pixels[i]);  // a NaN wins, so that it is seen
      const Choice number = {i, i, i, i, i, i, i, i};
      best = larger ? pixels[i] : best;
      winner = larger ? number : winner;
    }
    if (clamp) {
      const ChannelBlock zero = {};
      const Choice nobody = {kNobody, kNobody, kNobody, kNobody, kNobody, kNobody, kNobody, kNobody};
      const Choice clamped = best <= zero;
      winner = clamped ? nobody : winner;
      best = clamped ? zero : best;
    }
    store(out + x * kChannelBlock, best);
    if (winners != nullptr) {
      const PackedChoice packed = __builtin_convertvector(winner, PackedChoice);
      std::memcpy(winners + x * kChannelBlock, &packed, sizeof packed);
    }
  }
}

DISTBELIEF_MULTIVERSION void unpool_row(const float* gradient, const std::uint8_t* winners, std::int64_t width,
                                        float* above, float* below) {
  for (std::int64_t x = 0; x < width; ++x) {
    ChannelBlock given;
    load(gradient + x * kChannelBlock, given);
    PackedChoice packed;
    std::memcpy(&packed, winners + x * kChannelBlock, sizeof packed);
    const Choice winner = __builtin_convertvector(packed, Choice);
    const ChannelBlock zero = {};
    store(above + 2 * x * kChannelBlock, winner == 0 ? given : zero);
    store(above + (2 * x + 1) * kChannelBlock, winner == 1 ? given : zero);
    store(below + 2 * x * kChannelBlock, winner == 2 ? given : zero);
    store(below + (2 * x + 1) * kChannelBlock, winner == 3 ? given : zero);
  }
}

class MaxPool2x2Kernel : public Kernel {
 public:
  MaxPool2x2Kernel(const ValueLayout& input, ValueLayout output, bool relu, Purpose purpose)
      : Kernel(std::move(output)), relu_(relu), training_(purpose == Purpose::training) {
    const Shape& image = input.spec.shape;
    planes_ = image[0] * ((image[1] + kChannelBlock - 1) / kChannelBlock);
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
      pool_row(above, above + width_ * kChannelBlock, width, relu_, memory_.output + out_row,
               winners == nullptr ? nullptr : winners + out_row);
    });
  }

  void backward(const StepContext& /*step*/) override {
    float* out = memory_.input_gradients[0];
    if (height_ % 2 != 0 || width_ % 2 != 0) {
      std::memset(out, 0, static_cast<std::size_t>(planes_ * height_ * width_ * kChannelBlock) * sizeof(float));
    }
    const auto* winners = reinterpret_cast<const std::uint8_t*>(memory_.workspace);
    for_each_row([&](std::int64_t in_row, std::int64_t out_row, std::int64_t width) {
      float* above = out + in_row;
      unpool_row(memory_.output_gradient + out_row, winners + out_row, width, above, above + width_ * kChannelBlock);
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
          visit((plane * height_ + 2 * y) * width_ * kChannelBlock, (plane * rows + y) * width * kChannelBlock, width);
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

}  // namespace

std::unique_ptr<Kernel> compile_max_pool_2x2(const ValueLayout& input, const Shape& output, const Window& window,
                                             const PoolingOptions& options, Purpose purpose) {
  const Extent two = {2, 2};
  if (options.kind != PoolingOptions::Kind::max || window.kernel != two || window.stride != two ||
      window.padding != Extent{0, 0} || window.dilation != Extent{1, 1} ||
      input.layout != channel_blocked_layout(input.spec.shape)) {
    return nullptr;
  }
  ValueLayout result{{output, ValueKind::dense}, channel_blocked_layout(output)};
  return std::make_unique<MaxPool2x2Kernel>(input, std::move(result), options.relu, purpose);
}

}  // namespace distbelief
