#pragma once

#include <cstdint>

#include "graph/layer.h"

namespace distbelief {

/// Height and width of something that slides over an image.
struct Extent {
  std::int64_t height = 1;
  std::int64_t width = 1;
  friend bool operator==(const Extent&, const Extent&) = default;
};

/// A window that slides over an image: size, step, zeros around the image, gaps between taps.
struct Window {
  Extent kernel;
  Extent stride = {1, 1};
  Extent padding = {0, 0};  ///< on each side
  Extent dilation = {1, 1};

  /// How many places the window takes on an image. Throws ShapeError when it has none, or a size makes no sense.
  Extent places(const Layer& layer, const Shape& image) const;
  /// The rows of the image under the window at these rows of places.
  RowsNeeded rows_needed(const Slice& places) const;
};

}  // namespace distbelief
