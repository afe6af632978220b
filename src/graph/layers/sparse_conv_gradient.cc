#include "graph/layers/sparse_conv_gradient.h"

#include <algorithm>
#include <cstring>

#include "base/multiversion.h"
#include "base/parallel.h"
#include "graph/layers/channel_block.h"

namespace distbelief {

struct SparseConvGradient::Lane {
  float* padded;             ///< one image with its zeros around
  float* padded_gradient;    ///< the same for its gradient
  SparseConvEntry* entries;  ///< [filter][place]
  std::int64_t* counts;      ///< of entries, by filter
  float* sums;               ///< weight gradient, [filter][plane][row][tap][8]
  float* bias_sums;
};

namespace {

using Entry = SparseConvEntry;
constexpr double kMostDensity = 0.3;
/// sums[row][tap] += value × patch, over all entries; kRows × kTaps sums stay in registers meanwhile.
template <int kRows, int kTaps>
__attribute__((always_inline)) inline void gather(const Entry* entries, std::int64_t count, const float* plane,
                                                  std::int64_t row_floats, std::int64_t unit, float* sums) {
  ChannelBlock own[kRows][kTaps] = {};
  for (std::int64_t i = 0; i < count; ++i) {
    const float* patch = plane + entries[i].pixel * unit;
    const float value = entries[i].value;
    for (int row = 0; row < kRows; ++row) {
      for (int tap = 0; tap < kTaps; ++tap) {
        ChannelBlock pixels;
        load(patch + row * row_floats + tap * kChannelBlock, pixels);
        own[row][tap] += value * pixels;
      }
    }
  }
  for (int row = 0; row < kRows; ++row) {
    for (int tap = 0; tap < kTaps; ++tap) {
      ChannelBlock sum;
      load(sums + (row * kTaps + tap) * kChannelBlock, sum);
      sum += own[row][tap];
      store(sums + (row * kTaps + tap) * kChannelBlock, sum);
    }
  }
}

template <int kTaps>
__attribute__((always_inline)) inline void gather_rows(const Entry* entries, std::int64_t count, const float* plane,
                                                       std::int64_t row_floats, std::int64_t unit, std::int64_t rows,
                                                       float* sums) {
  // As many rows at a time as sixteen registers hold.
  constexpr int kRows = kTaps == 1 ? 8 : kTaps == 2 ? 5 : kTaps == 3 ? 4 : kTaps == 4 ? 3 : kTaps <= 6 ? 2 : 1;
  std::int64_t row = 0;
  for (; row + kRows <= rows; row += kRows) {
    gather<kRows, kTaps>(entries, count, plane + row * row_floats, row_floats, unit,
                         sums + row * kTaps * kChannelBlock);
  }
  for (; row < rows; ++row) {
    gather<1, kTaps>(entries, count, plane + row * row_floats, row_floats, unit, sums + row * kTaps * kChannelBlock);
  }
}

/// patch += value × weights[row][tap], for all entries.
template <int kTaps>
__attribute__((always_inline)) inline void scatter_rows(const Entry* entries, std::int64_t count, float* plane,
                                                        std::int64_t row_floats, std::int64_t rows,
                                                        const float* weights) {
  for (std::int64_t i = 0; i < count; ++i) {
    float* patch = plane + entries[i].pixel * kChannelBlock;
    const float value = entries[i].value;
    for (std::int64_t row = 0; row < rows; ++row) {
      for (int tap = 0; tap < kTaps; ++tap) {
        ChannelBlock pixels;
        ChannelBlock weight;
        load(patch + row * row_floats + tap * kChannelBlock, pixels);
        load(weights + (row * kTaps + tap) * kChannelBlock, weight);
        pixels += value * weight;
        store(patch + row * row_floats + tap * kChannelBlock, pixels);
      }
    }
  }
}

// The number of taps must be known to the compiler for sums to stay in registers; these choose among eight versions.

DISTBELIEF_MULTIVERSION void gather_plane(const Entry* entries, std::int64_t count, const float* plane,
                                          std::int64_t row_floats, std::int64_t unit, std::int64_t rows,
                                          std::int64_t taps, float* sums) {
  switch (taps) {
#define DISTBELIEF_GATHER(n) \
  case n:                    \
    return gather_rows<n>(entries, count, plane, row_floats, unit, rows, sums);
    DISTBELIEF_GATHER(1)
    DISTBELIEF_GATHER(2)
    DISTBELIEF_GATHER(3)
    DISTBELIEF_GATHER(4)
    DISTBELIEF_GATHER(5)
    DISTBELIEF_GATHER(6)
    DISTBELIEF_GATHER(7)
    DISTBELIEF_GATHER(8)
#undef DISTBELIEF_GATHER
    default:
      return;
  }
}

DISTBELIEF_MULTIVERSION void scatter_plane(const Entry* entries, std::int64_t count, float* plane,
                                           std::int64_t row_floats, std::int64_t rows, std::int64_t taps,
                                           const float* weights) {
  switch (taps) {
#define DISTBELIEF_SCATTER(n) \
  case n:                     \
    return scatter_rows<n>(entries, count, plane, row_floats, rows, weights);
    DISTBELIEF_SCATTER(1)
    DISTBELIEF_SCATTER(2)
    DISTBELIEF_SCATTER(3)
    DISTBELIEF_SCATTER(4)
    DISTBELIEF_SCATTER(5)
    DISTBELIEF_SCATTER(6)
    DISTBELIEF_SCATTER(7)
    DISTBELIEF_SCATTER(8)
#undef DISTBELIEF_SCATTER
    default:
      return;
  }
}

/// One row of the output gradient in one block of filters: appends what is not zero to its filter's entries, which are
/// `places` apart.
DISTBELIEF_MULTIVERSION void collect_row(const float* row, std::int64_t width, std::int64_t first_pixel,
                                         std::int64_t stride, std::int64_t places, Entry* entries,
                                         std::int64_t* counts) {
  using Flags = std::int32_t __attribute__((vector_size(32)));
  using PackedFlags = std::uint8_t __attribute__((vector_size(8)));
  for (std::int64_t x = 0; x < width; ++x) {
    ChannelBlock values;
    load(row + x * kChannelBlock, values);
    const Flags present = values != 0;
    const PackedFlags packed = __builtin_convertvector(present, PackedFlags);
    std::uint64_t left;
    std::memcpy(&left, &packed, sizeof left);
    while (left != 0) {
      const int i = __builtin_ctzll(left) / 8;
      entries[i * places + counts[i]] = {static_cast<std::int32_t>(first_pixel + x * stride),
                                         row[x * kChannelBlock + i]};
      counts[i] += 1;
      left &= ~(std::uint64_t{0xFF} << (8 * i));
    }
  }
}

std::size_t aligned(std::int64_t bytes) { return (static_cast<std::size_t>(bytes) + 63) / 64 * 64; }

}  // namespace

SparseConvGradient::SparseConvGradient(const Shape& image, std::int64_t filters, const Window& window, Extent places,
                                       bool thin)
    : images_(image[0]),
      channels_(image[1]),
      height_(image[2]),
      width_(image[3]),
      filters_(filters),
      padded_height_(height_ + 2 * window.padding.height),
      padded_width_(width_ + 2 * window.padding.width),
      planes_(thin ? channels_ : (channels_ + kChannelBlock - 1) / kChannelBlock),
      unit_(thin ? 1 : kChannelBlock),
      taps_(thin ? 1 : window.kernel.width),
      window_(window),
      places_(places),
      thin_(thin) {}

bool SparseConvGradient::fits(const Shape& image, std::int64_t filters, std::int64_t groups, const Window& window) {
  const std::int64_t pixels = (image[2] + 2 * window.padding.height) * (image[3] + 2 * window.padding.width);
  return groups == 1 && filters % kChannelBlock == 0 && window.dilation == Extent{1, 1} &&
         window.kernel.width <= kChannelBlock && pixels < (std::int64_t{1} << 31);
}

std::int64_t SparseConvGradient::padded_floats() const {
  // A thin patch is read as eight pixels, so the last one may reach past the end.
  return planes_ * padded_height_ * padded_width_ * unit_ + kChannelBlock;
}

std::size_t SparseConvGradient::scratch_bytes(int threads) const {
  const std::int64_t places = places_.height * places_.width;
  const std::size_t own = 2 * aligned(padded_floats() * 4) + aligned(filters_ * places * 8) + aligned(filters_ * 8) +
                          aligned(filters_ * vectors_per_filter() * kChannelBlock * 4) + aligned(filters_ * 4);
  return own * static_cast<std::size_t>(threads) + aligned(filters_ * vectors_per_filter() * kChannelBlock * 4);
}

SparseConvGradient::Lane SparseConvGradient::lane(std::byte* scratch, std::int64_t number) const {
  const std::size_t weights = aligned(filters_ * vectors_per_filter() * kChannelBlock * 4);
  std::byte* at = scratch + weights + static_cast<std::size_t>(number) * (scratch_bytes(1) - weights);
  const auto take = [&at](std::size_t bytes) {
    std::byte* piece = at;
    at += bytes;
    return piece;
  };
  Lane lane{};
  lane.padded = reinterpret_cast<float*>(take(aligned(padded_floats() * 4)));
  lane.padded_gradient = reinterpret_cast<float*>(take(aligned(padded_floats() * 4)));
  lane.entries = reinterpret_cast<Entry*>(take(aligned(filters_ * places_.height * places_.width * 8)));
  lane.counts = reinterpret_cast<std::int64_t*>(take(aligned(filters_ * 8)));
  lane.sums = reinterpret_cast<float*>(take(weights));
  lane.bias_sums = reinterpret_cast<float*>(take(aligned(filters_ * 4)));
  return lane;
}

bool SparseConvGradient::worthwhile(const float* output_gradient) const {
  const std::int64_t count = filters_ * places_.height * places_.width;
  std::int64_t present = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    present += output_gradient[i] != 0 ? 1 : 0;
  }
  return static_cast<double>(present) <= kMostDensity * static_cast<double>(count);
}

void SparseConvGradient::pad_image(const float* image, float* padded) const {
  for (std::int64_t plane = 0; plane < planes_; ++plane) {
    for (std::int64_t y = 0; y < height_; ++y) {
      std::memcpy(
          padded +
              ((plane * padded_height_ + y + window_.padding.height) * padded_width_ + window_.padding.width) * unit_,
          image + (plane * height_ + y) * width_ * unit_, static_cast<std::size_t>(width_ * unit_) * sizeof(float));
    }
  }
}

void SparseConvGradient::unpad_gradient(const float* padded, float* image) const {
  for (std::int64_t plane = 0; plane < planes_; ++plane) {
    for (std::int64_t y = 0; y < height_; ++y) {
      std::memcpy(
          image + (plane * height_ + y) * width_ * unit_,
          padded +
              ((plane * padded_height_ + y + window_.padding.height) * padded_width_ + window_.padding.width) * unit_,
          static_cast<std::size_t>(width_ * unit_) * sizeof(float));
    }
  }
}

void SparseConvGradient::collect(const float* output_gradient, const Lane& lane) const {
  const std::int64_t places = places_.height * places_.width;
  for (std::int64_t block = 0; block < filters_ / kChannelBlock; ++block) {
    std::int64_t counts[kChannelBlock] = {};
    Entry* entries = lane.entries + block * kChannelBlock * places;
    const float* at = output_gradient + block * places * kChannelBlock;
    for (std::int64_t y = 0; y < places_.height; ++y) {
      collect_row(at + y * places_.width * kChannelBlock, places_.width, y * window_.stride.height * padded_width_,
                  window_.stride.width, places, entries, counts);
    }
    for (std::int64_t i = 0; i < kChannelBlock; ++i) {
      float sum = 0;
      for (std::int64_t k = 0; k < counts[i]; ++k) {
        sum += entries[i * places + k].value;
      }
      lane.bias_sums[block * kChannelBlock + i] += sum;
      lane.counts[block * kChannelBlock + i] = counts[i];
    }
  }
}

void SparseConvGradient::do_image(const float* input, const float* output_gradient, const float* arranged_weights,
                                  float* input_gradient, const Lane& lane) const {
  const std::int64_t rows = window_.kernel.height;
  const std::int64_t row_floats = padded_width_ * unit_;
  const std::int64_t plane_floats = padded_height_ * row_floats;
  pad_image(input, lane.padded);
  collect(output_gradient, lane);
  if (input_gradient != nullptr) {
    std::memset(lane.padded_gradient, 0, static_cast<std::size_t>(padded_floats()) * sizeof(float));
  }
  for (std::int64_t filter = 0; filter < filters_; ++filter) {
    const Entry* entries = lane.entries + filter * places_.height * places_.width;
    for (std::int64_t plane = 0; plane < planes_; ++plane) {
      const std::int64_t weights_at = (filter * planes_ + plane) * rows * taps_ * kChannelBlock;
      gather_plane(entries, lane.counts[filter], lane.padded + plane * plane_floats, row_floats, unit_, rows, taps_,
                   lane.sums + weights_at);
      if (input_gradient != nullptr) {
        scatter_plane(entries, lane.counts[filter], lane.padded_gradient + plane * plane_floats, row_floats, rows,
                      taps_, arranged_weights + weights_at);
      }
    }
  }
  if (input_gradient != nullptr) {
    unpad_gradient(lane.padded_gradient, input_gradient);
  }
}

template <typename Visit>
void SparseConvGradient::for_each_weight(const Visit& visit) const {
  const std::int64_t rows = window_.kernel.height;
  const std::int64_t columns = window_.kernel.width;
  for (std::int64_t filter = 0; filter < filters_; ++filter) {
    for (std::int64_t channel = 0; channel < channels_; ++channel) {
      for (std::int64_t y = 0; y < rows; ++y) {
        for (std::int64_t x = 0; x < columns; ++x) {
          const std::int64_t plain = ((filter * channels_ + channel) * rows + y) * columns + x;
          const std::int64_t plane = thin_ ? channel : channel / kChannelBlock;
          const std::int64_t tap = thin_ ? 0 : x;
          const std::int64_t place = thin_ ? x : channel % kChannelBlock;
          visit(plain, (((filter * planes_ + plane) * rows + y) * taps_ + tap) * kChannelBlock + place);
        }
      }
    }
  }
}

void SparseConvGradient::run(const float* input, const float* output_gradient, const float* weights,
                             float* weight_gradient, float* bias_gradient, float* input_gradient, std::byte* scratch,
                             int threads) const {
  const auto parts = std::min<std::int64_t>(images_, threads);
  const std::int64_t arranged_floats = filters_ * vectors_per_filter() * kChannelBlock;
  const std::int64_t image_floats = planes_ * height_ * width_ * unit_;
  const std::int64_t gradient_floats = filters_ * places_.height * places_.width;
  auto* arranged = reinterpret_cast<float*>(scratch);
  if (input_gradient != nullptr) {
    std::memset(arranged, 0, static_cast<std::size_t>(arranged_floats) * sizeof(float));
    for_each_weight([&](std::int64_t plain, std::int64_t place) { arranged[place] = weights[plain]; });
  }
  parallel_for(parts, 1, [&](std::int64_t first, std::int64_t end) {
    for (std::int64_t part = first; part < end; ++part) {
      const Lane own = lane(scratch, part);
      std::memset(own.padded, 0, static_cast<std::size_t>(padded_floats()) * sizeof(float));
      std::memset(own.sums, 0, static_cast<std::size_t>(arranged_floats) * sizeof(float));
      std::memset(own.bias_sums, 0, static_cast<std::size_t>(filters_) * sizeof(float));
      for (std::int64_t n = images_ * part / parts; n < images_ * (part + 1) / parts; ++n) {
        do_image(input + n * image_floats, output_gradient + n * gradient_floats, arranged,
                 input_gradient == nullptr ? nullptr : input_gradient + n * image_floats, own);
      }
    }
  });
  // The parts in order, so that the bits depend on their number only.
  const Lane total = lane(scratch, 0);
  for (std::int64_t part = 1; part < parts; ++part) {
    const Lane other = lane(scratch, part);
    for (std::int64_t i = 0; i < arranged_floats; ++i) {
      total.sums[i] += other.sums[i];
    }
    for (std::int64_t filter = 0; filter < filters_; ++filter) {
      total.bias_sums[filter] += other.bias_sums[filter];
    }
  }
  for_each_weight([&](std::int64_t plain, std::int64_t place) { weight_gradient[plain] = total.sums[place]; });
  if (bias_gradient != nullptr) {
    std::copy(total.bias_sums, total.bias_sums + filters_, bias_gradient);
  }
}

}  // namespace distbelief
