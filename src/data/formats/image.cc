#include "data/formats/image.h"

#include <png.h>
#include <turbojpeg.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string_view>

#include "base/error.h"

namespace distbelief {
namespace {

constexpr std::int64_t kMostPixels = std::int64_t{1} << 26;

void check_size(std::int64_t height, std::int64_t width, const std::string& name) {
  if (height <= 0 || width <= 0 || height > kMostPixels / width) {
    throw FileError(fmt::format("{}: an image of {}x{}: expected at most {} pixels", name, height, width, kMostPixels));
  }
}

/// Text of a library, without its line ends.
std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

Image decode_png(std::span<const std::byte> file, const std::string& name) {
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  const std::unique_ptr<png_image, void (*)(png_image*)> guard(&png, png_image_free);
  if (png_image_begin_read_from_memory(&png, file.data(), file.size()) == 0) {
    throw FileError(fmt::format("{}: broken PNG: {}", name, one_line(png.message)));
  }
  check_size(png.height, png.width, name);
  // A byte of the file can hold no more than 8 pixels, 1032 times over.
  if (std::int64_t{png.height} * png.width / 8256 > static_cast<std::int64_t>(file.size())) {
    throw FileError(
        fmt::format("{}: broken PNG: {} bytes cannot hold {}x{} pixels", name, file.size(), png.height, png.width));
  }
  // The library is content when it has all pixels; a file without its last chunk is nevertheless not whole.
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (text.rfind("IEND\xAE\x42\x60\x82") == std::string_view::npos) {
    throw FileError(fmt::format("{}: broken PNG: its end is missing, after {} bytes", name, file.size()));
  }
  png.format = PNG_FORMAT_RGB;
  Image image{png.height, png.width, std::vector<std::uint8_t>(PNG_IMAGE_SIZE(png))};
  const png_color background{0, 0, 0};  // where the image is transparent
  if (png_image_finish_read(&png, &background, image.pixels.data(), 0, nullptr) == 0) {
    throw FileError(fmt::format("{}: broken PNG: {}", name, one_line(png.message)));
  }
  return image;
}

/// The largest reduction (1, 1/2, 1/4, 1/8) that leaves at least the wanted size.
tjscalingfactor find_scale(int height, int width, std::int64_t wanted_height, std::int64_t wanted_width) {
  tjscalingfactor best{1, 1};
  for (const int denominator : {2, 4, 8}) {
    const tjscalingfactor factor{1, denominator};
    if (wanted_height > 0 && TJSCALED(height, factor) >= wanted_height && TJSCALED(width, factor) >= wanted_width) {
      best = factor;
    }
  }
  return best;
}

Image decode_jpeg(std::span<const std::byte> file, const std::string& name, std::int64_t wanted_height,
                  std::int64_t wanted_width) {
  const std::unique_ptr<void, int (*)(tjhandle)> decoder(tjInitDecompress(), tjDestroy);
  const auto* bytes = reinterpret_cast<const unsigned char*>(file.data());
  const auto fail = [&] {
    throw FileError(fmt::format("{}: broken JPEG: {}", name, one_line(tjGetErrorStr2(decoder.get()))));
  };
  int width = 0;
  int height = 0;
  int subsampling = 0;
  int colours = 0;
  if (decoder == nullptr ||
      tjDecompressHeader3(decoder.get(), bytes, file.size(), &width, &height, &subsampling, &colours) != 0) {
    fail();
  }
  check_size(height, width, name);
  const tjscalingfactor factor = find_scale(height, width, wanted_height, wanted_width);
  const int out_width = TJSCALED(width, factor);
  const int out_height = TJSCALED(height, factor);
  const std::size_t pixels = static_cast<std::size_t>(out_width) * static_cast<std::size_t>(out_height);
  const bool four = colours == TJCS_CMYK || colours == TJCS_YCCK;
  Image image{out_height, out_width, std::vector<std::uint8_t>(pixels * (four ? 4 : 3))};
  if (tjDecompress2(decoder.get(), bytes, file.size(), image.pixels.data(), out_width, 0, out_height,
                    four ? TJPF_CMYK : TJPF_RGB, 0) != 0) {
    // Odd bytes between segments are common and harmless; missing data are not.
    const std::string_view reason = tjGetErrorStr2(decoder.get());
    if (tjGetErrorCode(decoder.get()) != TJERR_WARNING || reason.find("remature end") != std::string_view::npos) {
      fail();
    }
  }
  if (four) {  // as Adobe writes it: inverted, so that black is a factor
    for (std::size_t i = 0; i < pixels; ++i) {
      const unsigned black = image.pixels[4 * i + 3];
      for (std::size_t c = 0; c < 3; ++c) {
        image.pixels[3 * i + c] = static_cast<std::uint8_t>(image.pixels[4 * i + c] * black / 255);
      }
    }
    image.pixels.resize(pixels * 3);
  }
  return image;
}

/// Which source pixels make up one pixel of the result, and with what weights that sum to 1.
struct Tap {
  std::int64_t first;
  std::vector<float> weights;
};

/// A triangle filter as wide as the reduction (so an average when shrinking, linear interpolation when growing) along
/// one side of `size` pixels, scaled by `scale` and cut to the middle `wanted`.
std::vector<Tap> make_taps(std::int64_t size, double scale, std::int64_t wanted) {
  const double width = std::max(1.0, 1.0 / scale);
  const double start = (static_cast<double>(size) - static_cast<double>(wanted) / scale) / 2;
  std::vector<Tap> taps;
  for (std::int64_t i = 0; i < wanted; ++i) {
    const double centre = start + (static_cast<double>(i) + 0.5) / scale - 0.5;
    const std::int64_t first =
        std::clamp<std::int64_t>(static_cast<std::int64_t>(std::ceil(centre - width)), 0, size - 1);
    const std::int64_t last =
        std::clamp<std::int64_t>(static_cast<std::int64_t>(std::floor(centre + width)), first, size - 1);
    Tap tap{first, {}};
    double sum = 0;
    for (std::int64_t at = first; at <= last; ++at) {
      const double weight = std::max(0.0, 1.0 - std::abs(static_cast<double>(at) - centre) / width);
      tap.weights.push_back(static_cast<float>(weight));
      sum += weight;
    }
    if (sum <= 0) {  // a one-pixel side, asked for beyond its edge
      tap.weights.assign(1, 1.0F);
      sum = 1;
    }
    for (float& weight : tap.weights) {
      weight = static_cast<float>(weight / sum);
    }
    taps.push_back(std::move(tap));
  }
  return taps;
}

}  // namespace

Image decode_image(std::span<const std::byte> file, const std::string& name, std::int64_t wanted_height,
                   std::int64_t wanted_width) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (text.starts_with("\x89PNG")) {
    return decode_png(file, name);
  }
  if (text.starts_with("\xFF\xD8")) {
    return decode_jpeg(file, name, wanted_height, wanted_width);
  }
  throw FileError(fmt::format("{}: neither JPEG nor PNG", name));
}

void fit_image(const Image& image, std::int64_t channels, std::int64_t height, std::int64_t width, float* out) {
  const double scale = std::max(static_cast<double>(height) / static_cast<double>(image.height),
                                static_cast<double>(width) / static_cast<double>(image.width));
  const std::vector<Tap> columns = make_taps(image.width, scale, width);
  const std::vector<Tap> rows = make_taps(image.height, scale, height);
  // First along the rows that are needed, then down the columns.
  const std::int64_t top = rows.front().first;
  const std::int64_t bottom = rows.back().first + static_cast<std::int64_t>(rows.back().weights.size());
  std::vector<float> narrow(static_cast<std::size_t>((bottom - top) * width * 3));
  float* to = narrow.data();
  for (std::int64_t y = top; y < bottom; ++y) {
    const std::uint8_t* line = image.pixels.data() + y * image.width * 3;
    for (const Tap& tap : columns) {
      float sums[3] = {0, 0, 0};
      const std::uint8_t* from = line + tap.first * 3;
      for (const float weight : tap.weights) {
        sums[0] += weight * static_cast<float>(from[0]);
        sums[1] += weight * static_cast<float>(from[1]);
        sums[2] += weight * static_cast<float>(from[2]);
        from += 3;
      }
      to = std::copy_n(sums, 3, to);
    }
  }
  std::vector<float> line(static_cast<std::size_t>(width * 3));
  const std::int64_t plane = height * width;
  for (std::int64_t y = 0; y < height; ++y) {
    const Tap& tap = rows[static_cast<std::size_t>(y)];
    std::fill(line.begin(), line.end(), 0.0F);
    for (std::size_t k = 0; k < tap.weights.size(); ++k) {
      const float weight = tap.weights[k] / 255.0F;
      const float* from = narrow.data() + (tap.first - top + static_cast<std::int64_t>(k)) * width * 3;
      for (std::size_t x = 0; x < line.size(); ++x) {
        line[x] += weight * from[x];
      }
    }
    for (std::int64_t x = 0; x < width; ++x) {
      const float* pixel = line.data() + x * 3;
      float* place = out + y * width + x;
      if (channels == 1) {
        *place = 0.299F * pixel[0] + 0.587F * pixel[1] + 0.114F * pixel[2];
      } else {
        place[0] = pixel[0];
        place[plane] = pixel[1];
        place[2 * plane] = pixel[2];
      }
    }
  }
}

}  // namespace distbelief
