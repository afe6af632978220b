#include "graph/layers/locally_connected2d.h"

#include <algorithm>

#include "base/error.h"
#include "base/multiversion.h"
#include "base/parallel.h"
#include "graph/layers/sample_lanes.h"

namespace distbelief {
namespace {

// At each place a small matrix product: filters × taps with taps × samples. To have long vectors and gather no patches,
// values are held as [block of 16 samples][channel][row][column][sample], with the zeros around the image written out.
// A tap is then 16 floats at a fixed distance from the window's first one, and the weights are read as they are stored.

constexpr int kTile = 4;  ///< with two vectors each, what sixteen registers hold beside the operands
constexpr int kTaps = 2;

const Vector& at(const float* floats, int half) {
  return *reinterpret_cast<const Vector*>(floats + half * kVectorFloats);
}
Vector& at(float* floats, int half) { return *reinterpret_cast<Vector*>(floats + half * kVectorFloats); }

/// Sums of neighbours in `a`, then in `b`, by halves of 128 bits: crossing these is slow, so it is left for the end.
inline __attribute__((always_inline)) void add_neighbours(const Vector& a, const Vector& b, Vector& sums) {
  sums = __builtin_shufflevector(a, b, 0, 2, 8, 10, 4, 6, 12, 14) +
         __builtin_shufflevector(a, b, 1, 3, 9, 11, 5, 7, 13, 15);
}

/// Of eight vectors, the eight sums of their elements.
inline __attribute__((always_inline)) void add_across(const Vector (&v)[kVectorFloats], Vector& sums) {
  Vector pairs[4];
  DISTBELIEF_UNROLL for (int i = 0; i < 4; ++i) { add_neighbours(v[2 * i], v[2 * i + 1], pairs[i]); }
  Vector low;
  Vector high;
  add_neighbours(pairs[0], pairs[1], low);
  add_neighbours(pairs[2], pairs[3], high);
  sums = __builtin_shufflevector(low, high, 0, 1, 2, 3, 8, 9, 10, 11) +
         __builtin_shufflevector(low, high, 4, 5, 6, 7, 12, 13, 14, 15);
}

/// Sizes of everything, and where taps and filters lie, counted in groups of kLanes floats.
struct Geometry {
  std::int64_t samples, blocks;
  std::int64_t channels, height, width;      ///< of the image
  std::int64_t padded_height, padded_width;  ///< with the zeros around it
  std::int64_t filters, places_down, places_across;
  std::int64_t taps_of_channel;
  Window window;
  std::vector<std::int64_t> tap_offsets;     ///< from the window's first tap
  std::vector<std::int64_t> filter_offsets;  ///< from filter 0 at the same place

  Geometry(const Shape& image, const Shape& output, const Window& w)
      : samples(image[0]),
        blocks((image[0] + kLanes - 1) / kLanes),
        channels(image[1]),
        height(image[2]),
        width(image[3]),
        padded_height(image[2] + 2 * w.padding.height),
        padded_width(image[3] + 2 * w.padding.width),
        filters(output[1]),
        places_down(output[2]),
        places_across(output[3]),
        taps_of_channel(w.kernel.height * w.kernel.width),
        window(w) {
    for (std::int64_t c = 0; c < channels; ++c) {
      for (std::int64_t y = 0; y < w.kernel.height; ++y) {
        for (std::int64_t x = 0; x < w.kernel.width; ++x) {
          tap_offsets.push_back((c * padded_height + y * w.dilation.height) * padded_width + x * w.dilation.width);
        }
      }
    }
    for (std::int64_t f = 0; f < filters; ++f) {
      filter_offsets.push_back(f * places());
    }
  }

  std::int64_t places() const { return places_down * places_across; }
  std::int64_t taps() const { return channels * taps_of_channel; }
  std::int64_t image_block() const { return spaced(channels * padded_height * padded_width * kLanes); }
  std::int64_t output_block() const { return spaced(filters * places() * kLanes); }
  /// Blocks that lie a multiple of 4 KiB apart would fight for the same lines of the cache.
  static std::int64_t spaced(std::int64_t floats) { return (floats + 1023) / 1024 * 1024 + 9 * kLanes; }
  /// The window's first tap at a place, in a block.
  std::int64_t first_tap(std::int64_t place) const {
    return ((place / places_across) * window.stride.height * padded_width +
            (place % places_across) * window.stride.width) *
           kLanes;
  }
};

/// sums[j][·] += Σ_t a[j·step + t·inner] · rows[offsets[t]][·] for j < Rows.
template <int Rows>
inline __attribute__((always_inline)) void multiply(const float* a, std::int64_t step, std::int64_t inner,
                                                    const float* rows, const std::int64_t* offsets, std::int64_t count,
                                                    Vector (&sums)[kTile][2]) {
  for (std::int64_t t = 0; t < count; ++t) {
    const float* row = rows + offsets[t] * kLanes;
    DISTBELIEF_UNROLL for (int j = 0; j < Rows; ++j) {
      const float factor = a[j * step + t * inner];
      sums[j][0] += factor * at(row, 0);
      sums[j][1] += factor * at(row, 1);
    }
  }
}

template <int Rows>
inline __attribute__((always_inline)) void forward_tile(const Geometry& g, const float* weights, const float* bias,
                                                        const float* taps, float* output) {
  Vector sums[kTile][2];
  DISTBELIEF_UNROLL for (int j = 0; j < Rows; ++j) {
    const float start = bias == nullptr ? 0.0F : bias[j * g.places()];
    sums[j][0] = Vector{} + start;
    sums[j][1] = Vector{} + start;
  }
  multiply<Rows>(weights, g.places() * g.taps(), 1, taps, g.tap_offsets.data(), g.taps(), sums);
  DISTBELIEF_UNROLL for (int j = 0; j < Rows; ++j) {
    at(output + j * g.places() * kLanes, 0) = sums[j][0];
    at(output + j * g.places() * kLanes, 1) = sums[j][1];
  }
}

/// All filters and samples of one place.
DISTBELIEF_MULTIVERSION void forward_place(const Geometry& g, std::int64_t place, const float* image,
                                           const float* weights, const float* bias, float* output) {
  for (std::int64_t f = 0; f < g.filters; f += kTile) {
    const float* w = weights + (f * g.places() + place) * g.taps();
    const float* b = bias == nullptr ? nullptr : bias + f * g.places() + place;
    for (std::int64_t block = 0; block < g.blocks; ++block) {
      const float* taps = image + block * g.image_block() + g.first_tap(place);
      float* out = output + block * g.output_block() + (f * g.places() + place) * kLanes;
      switch (std::min<std::int64_t>(kTile, g.filters - f)) {
        case 1:
          forward_tile<1>(g, w, b, taps, out);
          break;
        case 2:
          forward_tile<2>(g, w, b, taps, out);
          break;
        case 3:
          forward_tile<3>(g, w, b, taps, out);
          break;
        default:
          forward_tile<kTile>(g, w, b, taps, out);
      }
    }
  }
}

/// The image's gradient at Rows taps gets what all filters of a place give.
template <int Rows>
inline __attribute__((always_inline)) void image_tile(const Geometry& g, const float* weights, const float* gradient,
                                                      const std::int64_t* offsets, float* taps) {
  Vector sums[kTile][2];
  DISTBELIEF_UNROLL for (int j = 0; j < Rows; ++j) {
    sums[j][0] = at(taps + offsets[j] * kLanes, 0);
    sums[j][1] = at(taps + offsets[j] * kLanes, 1);
  }
  multiply<Rows>(weights, 1, g.places() * g.taps(), gradient, g.filter_offsets.data(), g.filters, sums);
  DISTBELIEF_UNROLL for (int j = 0; j < Rows; ++j) {
    at(taps + offsets[j] * kLanes, 0) = sums[j][0];
    at(taps + offsets[j] * kLanes, 1) = sums[j][1];
  }
}

/// Adds what one place gives to the image's gradient, for some of the taps and one block.
DISTBELIEF_MULTIVERSION void backward_image(const Geometry& g, std::int64_t place, std::int64_t first_tap,
                                            std::int64_t last_tap, std::int64_t block, const float* weights,
                                            const float* gradient, float* image) {
  const float* out = gradient + block * g.output_block() + place * kLanes;
  float* taps = image + block * g.image_block() + g.first_tap(place);
  for (std::int64_t t = first_tap; t < last_tap; t += kTile) {
    const float* w = weights + place * g.taps() + t;
    const std::int64_t* offsets = g.tap_offsets.data() + t;
    switch (std::min<std::int64_t>(kTile, last_tap - t)) {
      case 1:
        image_tile<1>(g, w, out, offsets, taps);
        break;
      case 2:
        image_tile<2>(g, w, out, offsets, taps);
        break;
      case 3:
        image_tile<3>(g, w, out, offsets, taps);
        break;
      default:
        image_tile<kTile>(g, w, out, offsets, taps);
    }
  }
}

/// Gradients of Filters × Taps weights of a place: products of samples, added up over all of them.
template <int Filters, int Taps>
inline __attribute__((always_inline)) void weight_tile(const Geometry& g, const float* gradient, const float* taps,
                                                       const std::int64_t* offsets, float* weights) {
  static_assert(kTile * kTaps == kVectorFloats, "add_across() takes eight");
  Vector sums[kVectorFloats] = {};
  for (std::int64_t block = 0; block < g.blocks; ++block) {
    const float* out = gradient + block * g.output_block();
    const float* in = taps + block * g.image_block();
    DISTBELIEF_UNROLL for (int half = 0; half < 2; ++half) {
      Vector values[Taps];
      DISTBELIEF_UNROLL for (int t = 0; t < Taps; ++t) { values[t] = at(in + offsets[t] * kLanes, half); }
      DISTBELIEF_UNROLL for (int f = 0; f < Filters; ++f) {
        const Vector slope = at(out + f * g.places() * kLanes, half);
        DISTBELIEF_UNROLL for (int t = 0; t < Taps; ++t) { sums[f * Taps + t] += slope * values[t]; }
      }
    }
  }
  Vector totals;
  add_across(sums, totals);
  DISTBELIEF_UNROLL for (int f = 0; f < Filters; ++f) {
    DISTBELIEF_UNROLL for (int t = 0; t < Taps; ++t) { weights[f * g.places() * g.taps() + t] = totals[f * Taps + t]; }
  }
}

template <int Filters>
inline __attribute__((always_inline)) void weight_rows(const Geometry& g, const float* gradient, const float* taps,
                                                       float* weights) {
  const std::int64_t* offsets = g.tap_offsets.data();
  std::int64_t t = 0;
  for (; t + kTaps <= g.taps(); t += kTaps) {
    weight_tile<Filters, kTaps>(g, gradient, taps, offsets + t, weights + t);
  }
  for (; t < g.taps(); ++t) {
    weight_tile<Filters, 1>(g, gradient, taps, offsets + t, weights + t);
  }
}

/// The gradient of all weights (and the bias) of one place.
DISTBELIEF_MULTIVERSION void backward_weights(const Geometry& g, std::int64_t place, const float* image,
                                              const float* gradient, float* weights, float* bias) {
  const float* taps = image + g.first_tap(place);
  for (std::int64_t f = 0; f < g.filters; f += kTile) {
    const float* out = gradient + (f * g.places() + place) * kLanes;
    float* w = weights + (f * g.places() + place) * g.taps();
    switch (std::min<std::int64_t>(kTile, g.filters - f)) {
      case 1:
        weight_rows<1>(g, out, taps, w);
        break;
      case 2:
        weight_rows<2>(g, out, taps, w);
        break;
      case 3:
        weight_rows<3>(g, out, taps, w);
        break;
      default:
        weight_rows<kTile>(g, out, taps, w);
    }
  }
  for (std::int64_t f = 0; bias != nullptr && f < g.filters; ++f) {
    float sum = 0;
    for (std::int64_t block = 0; block < g.blocks; ++block) {
      const float* out = gradient + block * g.output_block() + (f * g.places() + place) * kLanes;
      for (std::int64_t lane = 0; lane < kLanes; ++lane) {
        sum += out[lane];
      }
    }
    bias[f * g.places() + place] = sum;
  }
}

class LocallyConnectedKernel : public Kernel {
 public:
  LocallyConnectedKernel(const Shape& image, const Shape& output, const LocallyConnected2dOptions& options,
                         Purpose purpose)
      : Kernel(plain_value(output)), g_(image, output, options.window), bias_(options.bias) {
    const auto images = static_cast<std::size_t>(g_.blocks * g_.image_block()) * sizeof(float);
    const auto outputs = static_cast<std::size_t>(g_.blocks * g_.output_block()) * sizeof(float);
    traits_ = {.workspace_bytes = images,
               .scratch_bytes = outputs + (purpose == Purpose::training ? images : 0),
               .backward_reads_inputs = false};
  }

  void forward(const StepContext& /*step*/) override {
    const auto* input = static_cast<const float*>(memory_.inputs[0]);
    for_channels(
        [&](std::int64_t block, std::int64_t channel, float* plane) {
          const float* first = input + (block * kLanes * g_.channels + channel) * g_.height * g_.width;
          if (g_.window.padding == Extent{0, 0}) {
            interleave(first, g_.channels * g_.height * g_.width, lanes(block), g_.height * g_.width, plane);
            return;
          }
          std::fill(plane, plane + g_.padded_height * g_.padded_width * kLanes, 0.0F);
          for (std::int64_t y = 0; y < g_.height; ++y) {
            const std::int64_t at = (y + g_.window.padding.height) * g_.padded_width + g_.window.padding.width;
            interleave(first + y * g_.width, g_.channels * g_.height * g_.width, lanes(block), g_.width,
                       plane + at * kLanes);
          }
        },
        image());
    float* outputs = gradients();
    for_places([&](std::int64_t place) {
      forward_place(g_, place, image(), memory_.parameters[0], bias_ ? memory_.parameters[1] : nullptr, outputs);
    });
    for_filters(
        [&](std::int64_t block, std::int64_t filter, float* plane) {
          float* first = memory_.output + (block * kLanes * g_.filters + filter) * g_.places();
          separate(plane, g_.places(), first, g_.filters * g_.places(), lanes(block));
        },
        outputs);
  }

  void backward(const StepContext& /*step*/) override {
    for_filters(
        [&](std::int64_t block, std::int64_t filter, float* plane) {
          const float* first = memory_.output_gradient + (block * kLanes * g_.filters + filter) * g_.places();
          interleave(first, g_.filters * g_.places(), lanes(block), g_.places(), plane);
        },
        gradients());
    for_places([&](std::int64_t place) {
      backward_weights(g_, place, image(), gradients(), memory_.parameter_gradients[0],
                       bias_ ? memory_.parameter_gradients[1] : nullptr);
    });
    if (memory_.input_gradients[0] != nullptr) {
      write_input_gradient();
    }
  }

 private:
  void write_input_gradient() {
    // Windows overlap, so threads share out channels, or blocks when there are too few. Every sum has the same order.
    float* images = gradients() + g_.blocks * g_.output_block();
    const bool by_channel = g_.channels >= thread_count();
    parallel_for(by_channel ? g_.channels : g_.blocks, 1, [&](std::int64_t begin, std::int64_t end) {
      const std::int64_t first_channel = by_channel ? begin : 0;
      const std::int64_t last_channel = by_channel ? end : g_.channels;
      const std::int64_t first_block = by_channel ? 0 : begin;
      const std::int64_t last_block = by_channel ? g_.blocks : end;
      const std::int64_t plane = g_.padded_height * g_.padded_width * kLanes;
      for (std::int64_t block = first_block; block < last_block; ++block) {
        float* part = images + block * g_.image_block();
        std::fill(part + first_channel * plane, part + last_channel * plane, 0.0F);
      }
      for (std::int64_t place = 0; place < g_.places(); ++place) {
        for (std::int64_t block = first_block; block < last_block; ++block) {
          backward_image(g_, place, first_channel * g_.taps_of_channel, last_channel * g_.taps_of_channel, block,
                         memory_.parameters[0], gradients(), images);
        }
      }
    });
    for_channels(
        [&](std::int64_t block, std::int64_t channel, const float* plane) {
          float* first = memory_.input_gradients[0] + (block * kLanes * g_.channels + channel) * g_.height * g_.width;
          for (std::int64_t y = 0; y < g_.height; ++y) {
            const std::int64_t at = (y + g_.window.padding.height) * g_.padded_width + g_.window.padding.width;
            separate(plane + at * kLanes, g_.width, first + y * g_.width, g_.channels * g_.height * g_.width,
                     lanes(block));
          }
        },
        images);
  }

  float* image() const { return reinterpret_cast<float*>(memory_.workspace); }
  /// Outputs or their gradients, by blocks.
  float* gradients() const { return reinterpret_cast<float*>(memory_.scratch); }
  std::int64_t lanes(std::int64_t block) const { return std::min(kLanes, g_.samples - block * kLanes); }

  template <typename Body>
  void for_places(const Body& body) const {
    parallel_for(g_.places(), 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t place = begin; place < end; ++place) {
        body(place);
      }
    });
  }

  /// Calls body(block, channel, its plane inside `images`).
  template <typename Body>
  void for_channels(const Body& body, float* images) const {
    for_planes(g_.channels, g_.padded_height * g_.padded_width * kLanes, g_.image_block(), body, images);
  }
  template <typename Body>
  void for_filters(const Body& body, float* outputs) const {
    for_planes(g_.filters, g_.places() * kLanes, g_.output_block(), body, outputs);
  }
  template <typename Body>
  void for_planes(std::int64_t count, std::int64_t size, std::int64_t block_size, const Body& body, float* base) const {
    parallel_for(g_.blocks * count, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        body(i / count, i % count, base + i / count * block_size + i % count * size);
      }
    });
  }

  const Geometry g_;
  const bool bias_;
};

}  // namespace

ValueSpec LocallyConnected2d::output(ValueSpecs inputs) const {
  const Shape& image = expect_image(*this, inputs);
  if (options_.filters < 1) {
    throw InputError(fmt::format("locally_connected2d needs filters of 1 or more, got {}", options_.filters));
  }
  const Extent places = options_.window.places(*this, image);
  return {{image[0], options_.filters, places.height, places.width}, ValueKind::dense};
}

std::vector<ParameterSpec> LocallyConnected2d::parameters(ValueSpecs inputs) const {
  const Shape out = output(inputs).shape;
  const Extent kernel = options_.window.kernel;
  const std::int64_t channels = inputs[0].shape[1];
  std::vector<ParameterSpec> specs = {{.name = "weight",
                                       .shape = {out[1], out[2], out[3], channels, kernel.height, kernel.width},
                                       .init = Initializer::he(channels * kernel.height * kernel.width)}};
  if (options_.bias) {
    specs.push_back({.name = "bias", .shape = {out[1], out[2], out[3]}, .init = Initializer::zeros(), .decays = false});
  }
  return specs;
}

std::int64_t LocallyConnected2d::flops(ValueSpecs inputs) const {
  const Extent kernel = options_.window.kernel;
  return 2 * output(inputs).shape.elements() * inputs[0].shape[1] * kernel.height * kernel.width;
}

std::vector<Cut> LocallyConnected2d::cuts(ValueSpecs /*inputs*/) const { return {Cut::region, Cut::outputs, Cut::inputs}; }

LayerPart LocallyConnected2d::part(Cut cut, ValueSpecs /*inputs*/, const Slice& slice) const {
  LocallyConnected2dOptions options = options_;
  const int axis = cut == Cut::region ? 1 : cut == Cut::outputs ? 0 : 3;
  LayerPart part = {.parameters = {{.name = "weight", .axis = axis, .slice = slice}}};
  if (cut == Cut::region) {
    options.window.padding.height = 0;
  } else if (cut == Cut::outputs) {
    options.filters = slice.size();
  } else {
    options.bias = options.bias && slice.begin == 0;
  }
  if (options.bias) {
    part.parameters.push_back({.name = "bias", .axis = cut == Cut::inputs ? -1 : axis, .slice = slice});
  }
  part.layer = std::make_shared<LocallyConnected2d>(options);
  return part;
}

RowsNeeded LocallyConnected2d::rows_needed(ValueSpecs /*inputs*/, const Slice& rows) const {
  return options_.window.rows_needed(rows);
}

std::unique_ptr<Kernel> LocallyConnected2d::compile(const Engine& /*engine*/, ValueLayouts inputs,
                                                    Purpose purpose) const {
  const ValueSpec& input = inputs[0].spec;
  return std::make_unique<LocallyConnectedKernel>(input.shape, output(std::span(&input, 1)).shape, options_, purpose);
}

}  // namespace distbelief
