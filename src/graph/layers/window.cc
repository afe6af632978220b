#include "graph/layers/window.h"

#include "base/error.h"

namespace distbelief {

Extent Window::places(const Layer& layer, const Shape& image) const {
  const auto along = [&](std::int64_t size, std::int64_t taps, std::int64_t step, std::int64_t pad, std::int64_t gap) {
    if (taps < 1 || step < 1 || pad < 0 || gap < 1) {
      throw InputError(fmt::format(
          "{} needs kernel, stride and dilation of 1 or more and padding of 0 or more; got {}, {}, {} and {}",
          layer.type(), taps, step, gap, pad));
    }
    const std::int64_t covered = (taps - 1) * gap + 1;
    const std::int64_t room = size + 2 * pad - covered;
    if (room < 0) {
      throw ShapeError(fmt::format("{}: a window of {} does not fit an image of {} with padding {} (input {})",
                                   layer.type(), covered, size, pad, image.text()));
    }
    return room / step + 1;
  };
  return {along(image[2], kernel.height, stride.height, padding.height, dilation.height),
          along(image[3], kernel.width, stride.width, padding.width, dilation.width)};
}

RowsNeeded Window::rows_needed(const Slice& places) const {
  const std::int64_t last = (places.end - 1) * stride.height - padding.height;
  return {places.begin * stride.height - padding.height, last + (kernel.height - 1) * dilation.height + 1};
}

}  // namespace distbelief
