#pragma once

#include <cstddef>
#include <cstdint>

#include "graph/layers/window.h"

namespace distbelief {

/// A number of an output gradient that is not zero.
struct SparseConvEntry {
  std::int32_t pixel;  ///< of the padded image, at the upper left corner of the patch it came from
  float value;
};

/// The gradients of a convolution whose output gradient is mostly zeros. Behind a max-pooling by 2×2 at least three of
/// four are, and behind a ReLU more; a dense kernel multiplies them all the same. Here each number that is not zero is
/// multiplied with the patch it came from (weights) and added to it (input), in vectors of eight channels, or, for an
/// input of one to four plain channels, of eight neighbouring pixels. Exact: only zeros are left out.
class SparseConvGradient {
 public:
  /// `image` is batch × channels × height × width and comes plain when `thin`, else in blocks of eight channels; the
  /// output gradient has blocks of eight filters.
  SparseConvGradient(const Shape& image, std::int64_t filters, const Window& window, Extent places, bool thin);
  static bool fits(const Shape& image, std::int64_t filters, std::int64_t groups, const Window& window);

  /// Looks at the first image: is it empty enough to pay? A function of the numbers alone.
  bool worthwhile(const float* output_gradient) const;

  std::size_t scratch_bytes(int threads) const;
  /// `weights`, `weight_gradient`: plain. `bias_gradient`, `input_gradient`: null when not wanted (a thin input never
  /// has one); the latter in the input's layout. Uses at most `threads` threads; the bits depend on their number.
  void run(const float* input, const float* output_gradient, const float* weights, float* weight_gradient,
           float* bias_gradient, float* input_gradient, std::byte* scratch, int threads) const;

 private:
  struct Lane;  ///< one thread's part of the scratch memory

  Lane lane(std::byte* scratch, std::int64_t number) const;
  std::int64_t vectors_per_filter() const { return planes_ * window_.kernel.height * taps_; }
  std::int64_t padded_floats() const;
  void pad_image(const float* image, float* padded) const;
  void unpad_gradient(const float* padded, float* image) const;
  /// Fills in the lane's entries, filter by filter, and adds up the bias gradient.
  void collect(const float* output_gradient, const Lane& lane) const;
  void do_image(const float* input, const float* output_gradient, const float* arranged_weights, float* input_gradient,
                const Lane& lane) const;
  /// Between [filters, channels, height, width] and [filter][plane][row][tap][8].
  template <typename Visit>
  void for_each_weight(const Visit& visit) const;

  std::int64_t images_, channels_, height_, width_, filters_;
  std::int64_t padded_height_, padded_width_;
  std::int64_t planes_;  ///< blocks of channels; channels when thin
  std::int64_t unit_;    ///< floats of a pixel in one plane
  std::int64_t taps_;    ///< vectors in a row of the window
  Window window_;
  Extent places_;
  bool thin_;
};

}  // namespace distbelief
