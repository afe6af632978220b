#include "graph/layers/thin_conv_gradient.h"

#include <algorithm>
#include <cstring>

#include "base/multiversion.h"
#include "base/parallel.h"
#include "graph/layers/channel_block.h"

namespace distbelief {
namespace {

using Filters = ChannelBlock;  // eight filters at one place

/// Adds, for one row of the output gradient and one row of the input, gradient(x) × input(x · stride + tap) to
/// sums[tap]. The sums live in registers while the row goes by; two sets of them where there is room, so that additions
/// need not wait for each other.
template <int kTaps>
__attribute__((always_inline)) inline void add_row(const float* gradient, const float* input, std::int64_t width,
                                                   std::int64_t stride, Filters* sums) {
  constexpr int kSets = kTaps <= 6 ? 2 : 1;
  Filters own[kSets][kTaps] = {};
  std::int64_t x = 0;
  for (; x + kSets <= width; x += kSets) {
    for (int set = 0; set < kSets; ++set) {
      Filters given;
      load(gradient + (x + set) * kChannelBlock, given);
      for (int tap = 0; tap < kTaps; ++tap) {
        own[set][tap] += given * input[(x + set) * stride + tap];
      }
    }
  }
  for (; x < width; ++x) {
    Filters given;
    load(gradient + x * kChannelBlock, given);
    for (int tap = 0; tap < kTaps; ++tap) {
      own[0][tap] += given * input[x * stride + tap];
    }
  }
  for (int tap = 0; tap < kTaps; ++tap) {
    sums[tap] += kSets == 2 ? own[0][tap] + own[kSets - 1][tap] : own[0][tap];
  }
}

DISTBELIEF_MULTIVERSION void add_rows(const float* gradient, const float* input, std::int64_t width,
                                      std::int64_t stride, std::int64_t taps, Filters* sums) {
  for (; taps >= 8; taps -= 8, input += 8, sums += 8) {
    add_row<8>(gradient, input, width, stride, sums);
  }
  switch (taps) {
    case 7:
      return add_row<7>(gradient, input, width, stride, sums);
    case 6:
      return add_row<6>(gradient, input, width, stride, sums);
    case 5:
      return add_row<5>(gradient, input, width, stride, sums);
    case 4:
      return add_row<4>(gradient, input, width, stride, sums);
    case 3:
      return add_row<3>(gradient, input, width, stride, sums);
    case 2:
      return add_row<2>(gradient, input, width, stride, sums);
    case 1:
      return add_row<1>(gradient, input, width, stride, sums);
    default:
      return;
  }
}

DISTBELIEF_MULTIVERSION void add_bias_row(const float* gradient, std::int64_t width, Filters* sum) {
  Filters own = *sum;
  for (std::int64_t x = 0; x < width; ++x) {
    Filters given;
    load(gradient + x * kChannelBlock, given);
    own += given;
  }
  *sum = own;
}

std::size_t aligned_bytes(std::int64_t floats) {
  return (static_cast<std::size_t>(floats) * sizeof(float) + 63) / 64 * 64;
}

}  // namespace

bool ThinConvGradient::fits(const Shape& image, std::int64_t filters, std::int64_t groups, const Window& window) {
  return image[1] <= kMostChannels && groups == 1 && filters % kChannelBlock == 0 && window.dilation == Extent{1, 1};
}

ThinConvGradient::ThinConvGradient(const Shape& image, std::int64_t filters, const Window& window, Extent places)
    : images_(image[0]),
      channels_(image[1]),
      height_(image[2]),
      width_(image[3]),
      padded_height_(height_ + 2 * window.padding.height),
      padded_width_(width_ + 2 * window.padding.width),
      blocks_(filters / kChannelBlock),
      window_(window),
      places_(places) {}

std::size_t ThinConvGradient::scratch_bytes(int threads) const {
  const std::int64_t taps = channels_ * window_.kernel.height * window_.kernel.width;
  return static_cast<std::size_t>(threads) * (aligned_bytes(channels_ * padded_height_ * padded_width_) +
                                              aligned_bytes(blocks_ * (taps + 1) * kChannelBlock));
}

void ThinConvGradient::run(const float* input, const float* output_gradient, float* weight_gradient,
                           float* bias_gradient, std::byte* scratch, int threads) const {
  const std::int64_t kernel_height = window_.kernel.height;
  const std::int64_t kernel_width = window_.kernel.width;
  const std::int64_t taps = channels_ * kernel_height * kernel_width;
  const std::size_t image_bytes = aligned_bytes(channels_ * padded_height_ * padded_width_);
  const std::size_t own_bytes = scratch_bytes(1);
  const auto parts = std::min<std::int64_t>(images_, threads);
  const auto sums_of = [&](std::int64_t part) {
    return reinterpret_cast<Filters*>(scratch + static_cast<std::size_t>(part) * own_bytes + image_bytes);
  };

  // Each part sums its own images: first the image with its zeros around, then every row against every tap.
  parallel_for(parts, 1, [&](std::int64_t first_part, std::int64_t end_part) {
    for (std::int64_t part = first_part; part < end_part; ++part) {
      auto* padded = reinterpret_cast<float*>(scratch + static_cast<std::size_t>(part) * own_bytes);
      Filters* sums = sums_of(part);
      std::memset(padded, 0, image_bytes);
      std::memset(sums, 0, aligned_bytes(blocks_ * (taps + 1) * kChannelBlock));
      for (std::int64_t n = images_ * part / parts; n < images_ * (part + 1) / parts; ++n) {
        for (std::int64_t row = 0; row < channels_ * height_; ++row) {
          const std::int64_t c = row / height_;
          const std::int64_t y = row % height_ + window_.padding.height;
          std::memcpy(padded + (c * padded_height_ + y) * padded_width_ + window_.padding.width,
                      input + (n * channels_ * height_ + row) * width_,
                      static_cast<std::size_t>(width_) * sizeof(float));
        }
        for (std::int64_t block = 0; block < blocks_; ++block) {
          Filters* block_sums = sums + block * (taps + 1);
          const float* gradient =
              output_gradient + (n * blocks_ + block) * places_.height * places_.width * kChannelBlock;
          for (std::int64_t y = 0; y < places_.height; ++y) {
            const float* gradient_row = gradient + y * places_.width * kChannelBlock;
            for (std::int64_t c = 0; c < channels_; ++c) {
              for (std::int64_t ky = 0; ky < kernel_height; ++ky) {
                add_rows(gradient_row, padded + (c * padded_height_ + y * window_.stride.height + ky) * padded_width_,
                         places_.width, window_.stride.width, kernel_width,
                         block_sums + (c * kernel_height + ky) * kernel_width);
              }
            }
            if (bias_gradient != nullptr) {
              add_bias_row(gradient_row, places_.width, block_sums + taps);
            }
          }
        }
      }
    }
  });

  // The parts in order, and from [block][tap][filter of block] to [filter][tap].
  for (std::int64_t block = 0; block < blocks_; ++block) {
    for (std::int64_t tap = 0; tap <= taps; ++tap) {
      Filters sum = {};
      for (std::int64_t part = 0; part < parts; ++part) {
        sum += sums_of(part)[block * (taps + 1) + tap];
      }
      for (std::int64_t i = 0; i < kChannelBlock; ++i) {
        const std::int64_t filter = block * kChannelBlock + i;
        if (tap < taps) {
          weight_gradient[filter * taps + tap] = sum[i];
        } else if (bias_gradient != nullptr) {
          bias_gradient[filter] = sum[i];
        }
      }
    }
  }
}

}  // namespace distbelief
