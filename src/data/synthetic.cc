#include "data/synthetic.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/random.h"

namespace distbelief {
namespace {

using Kind = SyntheticOptions::Kind;

constexpr std::int64_t kMaxElements = std::int64_t{1} << 28;
constexpr std::int64_t kMaxClasses = 1 << 20;
constexpr std::int64_t kCells = 8;  // a pattern is this many cells high and wide

/// Noise is most of the work, so it is a cheap hash and not CounterRandom: uniform in [-1, 1), variance 1/3.
float noise_at(std::uint64_t key, std::uint64_t element) {
  std::uint64_t x = key + element * 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 32)) * 0xD6E8FEB86659FD93U;
  x ^= x >> 32;
  return static_cast<float>(static_cast<std::int32_t>(x >> 8)) * 0x1p-31F;
}

class Synthetic final : public Dataset {
 public:
  /// Samples [first, first + count) of the endless series.
  Synthetic(const SyntheticOptions& options, std::uint64_t first, std::uint64_t count)
      : options_(options), random_(options.seed, RandomUse::generate), first_(first), count_(count) {
    spec_.input = options.shape;
    spec_.sparse = options.kind == Kind::sparse;
    spec_.indices = options.kind == Kind::indices;
    spec_.classes = options.kind == Kind::regression ? 0 : options.classes;
    spec_.targets = options.kind == Kind::regression ? options.targets : 0;
  }

  const SampleSpec& spec() const override { return spec_; }
  std::uint64_t size() const override { return count_; }
  void read(std::span<const std::uint64_t> ids, std::uint64_t epoch, Batch& batch) const override {
    start_batch(spec_, ids, epoch, batch);
    const std::size_t elements = static_cast<std::size_t>(spec_.input.elements());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const std::uint64_t sample = first_ + ids[i];
      const std::uint64_t key = random_.word64(kSampleStream, sample);
      const std::int64_t label = options_.kind == Kind::random ? static_cast<std::int64_t>(key % classes())
                                                               : static_cast<std::int64_t>(sample % classes());
      if (spec_.classes > 0) {
        batch.classes[i] = static_cast<std::int32_t>(label);
      }
      switch (options_.kind) {
        case Kind::classes:
          fill_pattern(label, key, batch.dense.data() + i * elements);
          break;
        case Kind::random:
        case Kind::regression:
          for (std::size_t k = 0; k < elements; ++k) {
            batch.dense[i * elements + k] = noise_at(key, k);
          }
          break;
        case Kind::sparse:
          fill_sparse(label, key, batch.sparse);
          break;
        case Kind::indices:
          for (std::size_t k = 0; k < elements; ++k) {
            batch.indices[i * elements + k] = static_cast<std::int32_t>(typical(label, key, k, options_.vocabulary));
          }
          break;
      }
      if (options_.kind == Kind::regression) {
        fill_targets(key, batch.dense.data() + i * elements,
                     batch.targets.data() + i * static_cast<std::size_t>(options_.targets));
      }
    }
  }

 private:
  static constexpr std::uint64_t kSampleStream = 1;
  static constexpr std::uint64_t kPatternStream = 2;
  static constexpr std::uint64_t kWeightStream = 3;

  std::uint64_t classes() const { return static_cast<std::uint64_t>(options_.classes); }

  /// The class's value in each of kCells x kCells cells of each channel, stretched over the image, plus noise.
  void fill_pattern(std::int64_t label, std::uint64_t key, float* out) const {
    const Shape& shape = spec_.input;
    const std::int64_t width = shape[shape.rank() - 1];
    const std::int64_t height = shape.rank() > 1 ? shape[shape.rank() - 2] : 1;
    const std::int64_t channels = shape.elements() / (width * height);
    const std::int64_t cells = height == 1 ? kCells * kCells : kCells;  // a plain row has all its cells side by side
    std::uint64_t element = 0;
    std::vector<float> row(static_cast<std::size_t>(std::min(cells, width)));
    for (std::int64_t c = 0; c < channels; ++c) {
      for (std::int64_t y = 0; y < height; ++y) {
        const std::int64_t cell_row = y * std::min(kCells, height) / height;
        if (y == 0 || cell_row != (y - 1) * std::min(kCells, height) / height) {
          for (std::size_t cell = 0; cell < row.size(); ++cell) {
            const std::uint64_t place =
                static_cast<std::uint64_t>((label * channels + c) * kCells + cell_row) * 64 + cell;
            row[cell] = random_.uniform(kPatternStream, place) < 0.5F ? -0.5F : 0.5F;
          }
        }
        for (std::int64_t x = 0; x < width; ++x, ++element) {
          const std::int64_t cell = x * static_cast<std::int64_t>(row.size()) / width;
          *out++ = row[static_cast<std::size_t>(cell)] + options_.noise * noise_at(key, element);
        }
      }
    }
  }

  /// A number in [0, range): every second one from the class's own share of the range, the others from anywhere.
  std::int64_t typical(std::int64_t label, std::uint64_t key, std::uint64_t element, std::int64_t range) const {
    const float uniform = 0.5F * (noise_at(key, element) + 1.0F);
    std::int64_t first = 0;
    std::int64_t last = range;
    if (element % 2 == 0) {
      first = range * label / options_.classes;
      last = std::max(first + 1, range * (label + 1) / options_.classes);
    }
    const double place = static_cast<double>(uniform) * static_cast<double>(last - first);
    return std::min(first + static_cast<std::int64_t>(place), last - 1);
  }

  void fill_sparse(std::int64_t label, std::uint64_t key, SparseRows& rows) const {
    const std::int64_t columns = spec_.input.elements();
    const auto begin = static_cast<std::ptrdiff_t>(rows.columns.size());
    for (std::int64_t k = 0; k < options_.nonzeros; ++k) {
      rows.columns.push_back(static_cast<std::int32_t>(typical(label, key, static_cast<std::uint64_t>(k), columns)));
    }
    std::sort(rows.columns.begin() + begin, rows.columns.end());
    rows.columns.erase(std::unique(rows.columns.begin() + begin, rows.columns.end()), rows.columns.end());
    const std::size_t count = rows.columns.size() - static_cast<std::size_t>(begin);
    for (std::size_t at = 0; at < count; ++at) {
      rows.values.push_back(1.0F + 0.5F * options_.noise * noise_at(key, at + 1000000));
    }
    rows.offsets.push_back(static_cast<std::int64_t>(rows.columns.size()));
  }

  void fill_targets(std::uint64_t key, const float* input, float* out) const {
    const std::int64_t elements = spec_.input.elements();
    const float scale = std::sqrt(3.0F / static_cast<float>(elements));  // targets of variance 1
    const std::uint64_t weight_key = random_.word64(kWeightStream, 0);
    for (std::int64_t t = 0; t < options_.targets; ++t) {
      float sum = 0;
      for (std::int64_t k = 0; k < elements; ++k) {
        sum += input[k] * noise_at(weight_key, static_cast<std::uint64_t>(t * elements + k));
      }
      const float noise = noise_at(key, static_cast<std::uint64_t>(elements + t));
      out[t] = sum * scale * std::sqrt(3.0F) + 0.1F * options_.noise * noise;
    }
  }

  SyntheticOptions options_;
  CounterRandom random_;
  std::uint64_t first_;
  std::uint64_t count_;
  SampleSpec spec_;
};

template <typename T>
T number(std::string_view key, std::string_view text, T least, T most) {
  T value{};
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc{} || result.ptr != text.data() + text.size() || !(value >= least && value <= most)) {
    throw InputError(fmt::format("synthetic: {}={}: expected a number from {} to {}", key, text, least, most));
  }
  return value;
}

Shape parse_shape(std::string_view text) {
  std::vector<std::int64_t> dims;
  std::int64_t elements = 1;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find('x', at), text.size());
    std::int64_t side = 0;
    const auto result = std::from_chars(text.data() + at, text.data() + end, side);
    if (result.ec != std::errc{} || result.ptr != text.data() + end || side < 1 || side > kMaxElements / elements) {
      throw InputError(fmt::format(
          "synthetic: shape={}: expected whole numbers from 1 on, with an x between, whose product is at most {}", text,
          kMaxElements));
    }
    dims.push_back(side);
    elements *= side;
    at = end + 1;
  }
  return Shape(std::move(dims));
}

Kind parse_kind(std::string_view text) {
  constexpr std::pair<std::string_view, Kind> kKinds[] = {{"classes", Kind::classes},
                                                          {"random", Kind::random},
                                                          {"regression", Kind::regression},
                                                          {"sparse", Kind::sparse},
                                                          {"indices", Kind::indices}};
  for (const auto& [name, kind] : kKinds) {
    if (name == text) {
      return kind;
    }
  }
  throw InputError(fmt::format("synthetic: kind={}: expected classes, random, regression, sparse or indices", text));
}

}  // namespace

SyntheticOptions parse_synthetic(std::string_view text) {
  SyntheticOptions options;
  bool has_test = false;
  bool has_shape = false;
  bool has_classes = false;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string_view item = text.substr(at, end - at);
    at = end + 1;
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos) {
      throw InputError(fmt::format("synthetic: '{}': expected key=value", item));
    }
    const std::string_view key = item.substr(0, equals);
    const std::string_view value = item.substr(equals + 1);
    constexpr std::uint64_t kMostSamples = std::uint64_t{1} << 40;
    if (key == "kind") {
      options.kind = parse_kind(value);
    } else if (key == "shape") {
      options.shape = parse_shape(value);
      has_shape = true;
    } else if (key == "classes") {
      options.classes = number<std::int64_t>(key, value, 1, kMaxClasses);
      has_classes = true;
    } else if (key == "targets") {
      options.targets = number<std::int64_t>(key, value, 1, kMaxClasses);
    } else if (key == "samples") {
      options.samples = number<std::uint64_t>(key, value, 1, kMostSamples);
    } else if (key == "test") {
      options.test = number<std::uint64_t>(key, value, 0, kMostSamples);
      has_test = true;
    } else if (key == "seed") {
      options.seed = number<std::uint64_t>(key, value, 0, ~std::uint64_t{0});
    } else if (key == "noise") {
      options.noise = number<float>(key, value, 0.0F, 1e6F);
    } else if (key == "nonzeros") {
      options.nonzeros = number<std::int64_t>(key, value, 1, 1 << 20);
    } else if (key == "vocabulary") {
      options.vocabulary = number<std::int64_t>(key, value, 1, std::int64_t{1} << 30);
    } else {
      throw InputError(
          fmt::format("synthetic: unknown key '{}': expected kind, shape, classes, targets, samples, test, "
                      "seed, noise, nonzeros or vocabulary",
                      key));
    }
  }
  if (!has_test) {
    options.test = (options.samples + 4) / 5;
  }
  if (!has_shape) {
    switch (options.kind) {
      case Kind::classes:
        break;
      case Kind::random:
        options.shape = Shape{3, 224, 224};
        break;
      case Kind::regression:
        options.shape = Shape{16};
        break;
      case Kind::sparse:
        options.shape = Shape{1000};
        break;
      case Kind::indices:
        options.shape = Shape{16};
        break;
    }
  }
  if (!has_classes) {
    options.classes = options.kind == Kind::random ? 1000 : options.kind == Kind::sparse ? 2 : 10;
  }
  if (options.kind == Kind::sparse && options.shape.rank() != 1) {
    throw InputError(fmt::format(
        "synthetic: shape={}: expected the number of columns of the sparse rows, as shape=1000", options.shape.text()));
  }
  return options;
}

SyntheticSplits make_synthetic(const SyntheticOptions& options) {
  SyntheticSplits splits;
  splits.train = std::make_shared<Synthetic>(options, 0, options.samples);
  if (options.test > 0) {
    splits.test = std::make_shared<Synthetic>(options, options.samples, options.test);
  }
  return splits;
}

}  // namespace distbelief
