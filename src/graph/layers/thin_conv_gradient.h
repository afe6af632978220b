#pragma once

#include <cstdint>

#include "graph/layers/window.h"

namespace distbelief {

/// The weight gradient of a convolution with few input channels, as a network's first layer has: one to four. oneDNN
/// pads them to eight and computes the padding too; this does not. The output gradient is in oneDNN's layout of
/// blocks of eight channels.
class ThinConvGradient {
 public:
  static constexpr std::int64_t kMostChannels = 4;

  ThinConvGradient() = default;
  /// `image` is batch × channels × height × width; `places` what the window gives on it.
  ThinConvGradient(const Shape& image, std::int64_t filters, const Window& window, Extent places);
  static bool fits(const Shape& image, std::int64_t filters, std::int64_t groups, const Window& window);

  /// Bytes of scratch memory for run(), with `threads` threads.
  std::size_t scratch_bytes(int threads) const;
  /// `input` is plain. Writes [filters, channels, height, width] plainly, and the bias gradient unless it is null. Uses
  /// at most `threads` threads; the bits depend on their number.
  void run(const float* input, const float* output_gradient, float* weight_gradient, float* bias_gradient,
           std::byte* scratch, int threads) const;

 private:
  std::int64_t images_ = 0, channels_ = 0, height_ = 0, width_ = 0;
  std::int64_t padded_height_ = 0, padded_width_ = 0;
  std::int64_t blocks_ = 0;  ///< of eight filters
  Window window_;
  Extent places_;
};

}  // namespace distbelief
