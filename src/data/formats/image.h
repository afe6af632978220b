#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace distbelief {

/// Pixels in rows, red, green and blue side by side.
struct Image {
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::vector<std::uint8_t> pixels;  ///< height x width x 3
};

/// Decodes JPEG or PNG, whichever the first bytes say. A JPEG may come out smaller than it is (by a power of two, which
/// is much faster), but never below the wanted size; 0 wants it whole. Throws FileError beginning with `name` when the
/// file is neither, is broken or truncated, or has more than 2^26 pixels. Thread-safe.
Image decode_image(std::span<const std::byte> file, const std::string& name, std::int64_t wanted_height = 0,
                   std::int64_t wanted_width = 0);

/// Scales the image, keeping its proportions, until it just covers height x width, cuts off what stands out, and writes
/// channels x height x width values in [0, 1]; one channel is grey. Each pixel is the average of what it covers.
void fit_image(const Image& image, std::int64_t channels, std::int64_t height, std::int64_t width, float* out);

}  // namespace distbelief
