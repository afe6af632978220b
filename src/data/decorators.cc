#include "data/decorators.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "data/array_dataset.h"

namespace distbelief {

Subset::Subset(std::shared_ptr<const Dataset> base, const Sampler& order, std::uint64_t first, std::uint64_t count)
    : base_(std::move(base)), order_(order), first_(first), count_(count) {
  check(order.samples() == base_->size() && first <= base_->size() && count <= base_->size() - first,
        "the subset lies inside its base");
}

void Subset::read(std::span<const std::uint64_t> ids, std::uint64_t epoch, Batch& batch) const {
  std::vector<std::uint64_t> base_ids(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    base_ids[i] = order_.at(0, first_ + ids[i]);
  }
  base_->read(base_ids, epoch, batch);
  batch.ids.assign(ids.begin(), ids.end());
}

ValidationSplit split_validation(const std::shared_ptr<const Dataset>& dataset, double fraction, std::uint64_t seed) {
  const std::uint64_t size = dataset->size();
  const double wanted = std::round(fraction * static_cast<double>(size));
  if (!(wanted >= 1 && wanted < static_cast<double>(size))) {
    throw InputError(fmt::format("validation: {} of {} samples leaves one part empty", fraction, size));
  }
  const std::uint64_t validation = static_cast<std::uint64_t>(wanted);
  const Sampler order(size, seed, true, RandomUse::split);
  return {std::make_shared<Subset>(dataset, order, 0, size - validation),
          std::make_shared<Subset>(dataset, order, size - validation, validation)};
}

Augmented::Augmented(std::shared_ptr<const Dataset> base, const Augmentation& augmentation, std::uint64_t seed)
    : base_(std::move(base)), augmentation_(augmentation), random_(seed, RandomUse::augment) {
  const SampleSpec& spec = base_->spec();
  if (spec.sparse || spec.indices || spec.input.rank() != 3) {
    throw InputError(fmt::format("augmentation: expected images (channels x height x width), but the samples are {}{}",
                                 spec.sparse ? "sparse rows of " : "", spec.input.text()));
  }
  if (augmentation.crop_padding < 0) {
    throw InputError(
        fmt::format("augmentation: the padding must not be negative, as {} is", augmentation.crop_padding));
  }
}

void Augmented::read(std::span<const std::uint64_t> ids, std::uint64_t epoch, Batch& batch) const {
  base_->read(ids, epoch, batch);
  const Shape& shape = base_->spec().input;
  const std::int64_t height = shape[1];
  const std::int64_t width = shape[2];
  const std::size_t elements = static_cast<std::size_t>(shape.elements());
  const std::uint64_t shifts = 2 * static_cast<std::uint64_t>(augmentation_.crop_padding) + 1;
  std::vector<float> original(elements);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto words = random_.words(epoch, ids[i]);
    const auto shift = [&](std::uint32_t word) {
      return static_cast<std::int64_t>((word * shifts) >> 32) - augmentation_.crop_padding;
    };
    const std::int64_t down = shift(words[0]);
    const std::int64_t right = shift(words[1]);
    const bool flip = augmentation_.flip && (words[2] & 1U) != 0;
    if (down == 0 && right == 0 && !flip) {
      continue;
    }
    float* image = batch.dense.data() + i * elements;
    std::copy_n(image, elements, original.data());
    std::fill_n(image, elements, 0.0F);
    const std::int64_t first =
        std::clamp<std::int64_t>(-right, 0, width);  // columns of the result that come from inside
    const std::int64_t last = std::clamp<std::int64_t>(width - right, first, width);
    for (std::int64_t c = 0; c < shape[0]; ++c) {
      for (std::int64_t y = std::max<std::int64_t>(0, -down); y < std::min(height, height - down); ++y) {
        const float* from = original.data() + (c * height + y + down) * width + right;
        float* to = image + (c * height + y) * width;
        if (flip) {
          for (std::int64_t x = first; x < last; ++x) {
            to[width - 1 - x] = from[x];
          }
        } else {
          std::copy(from + first, from + last, to + first);
        }
      }
    }
  }
}

namespace {

class Normalized final : public Dataset {
 public:
  Normalized(std::shared_ptr<const Dataset> base, const Normalization& normalization) : base_(std::move(base)) {
    for (std::size_t c = 0; c < normalization.mean.size(); ++c) {
      scale_.push_back(1.0F / normalization.deviation[c]);
      offset_.push_back(-normalization.mean[c] / normalization.deviation[c]);
    }
  }

  const SampleSpec& spec() const override { return base_->spec(); }
  std::uint64_t size() const override { return base_->size(); }
  void read(std::span<const std::uint64_t> ids, std::uint64_t epoch, Batch& batch) const override {
    base_->read(ids, epoch, batch);
    const std::size_t channels = scale_.size();
    const std::size_t plane = static_cast<std::size_t>(base_->spec().input.elements()) / channels;
    float* values = batch.dense.data();
    for (std::size_t i = 0; i < ids.size(); ++i) {
      for (std::size_t c = 0; c < channels; ++c) {
        for (std::size_t k = 0; k < plane; ++k) {
          values[k] = values[k] * scale_[c] + offset_[c];
        }
        values += plane;
      }
    }
  }
  std::vector<std::string> class_names() const override { return base_->class_names(); }
  std::string sample_name(std::uint64_t id) const override { return base_->sample_name(id); }
  bool cheap() const override { return base_->cheap(); }

 private:
  std::shared_ptr<const Dataset> base_;
  std::vector<float> scale_;
  std::vector<float> offset_;
};

}  // namespace

std::shared_ptr<const Dataset> normalize(std::shared_ptr<const Dataset> dataset, const Normalization& normalization) {
  const SampleSpec& spec = dataset->spec();
  if (spec.sparse || spec.indices || normalization.mean.empty()) {
    return dataset;
  }
  const std::size_t channels = spec.input.rank() == 0 ? 1 : static_cast<std::size_t>(spec.input[0]);
  const std::size_t given = normalization.mean.size();
  if (given != normalization.deviation.size() || (given != 1 && given != channels)) {
    throw InputError(fmt::format("normalisation: {} means and {} deviations do not fit samples of {}", given,
                                 normalization.deviation.size(), spec.input.text()));
  }
  for (const float deviation : normalization.deviation) {
    if (!(deviation > 0)) {
      throw InputError(fmt::format("normalisation: a deviation must be above 0, as {} is not", deviation));
    }
  }
  if (const auto* array = dynamic_cast<const ArrayDataset*>(dataset.get())) {
    return array->normalized(normalization);
  }
  return std::make_shared<Normalized>(std::move(dataset), normalization);
}

}  // namespace distbelief
