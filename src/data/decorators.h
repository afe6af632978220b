#pragma once

#include <memory>

#include "data/dataset.h"
#include "data/sampler.h"

namespace distbelief {

// Data sets made of other data sets. The base is shared: train and validation parts look at the same one.

/// The samples at positions [first, first + count) of an order; an order that does not shuffle gives a plain range.
/// Its samples are numbered from 0, also in batch.ids.
class Subset final : public Dataset {
 public:
  Subset(std::shared_ptr<const Dataset> base, const Sampler& order, std::uint64_t first, std::uint64_t count);

  const SampleSpec& spec() const override { return base_->spec(); }
  std::uint64_t size() const override { return count_; }
  void read(std::span<const std::uint64_t> ids, std::uint64_t epoch, Batch& batch) const override;
  std::vector<std::string> class_names() const override { return base_->class_names(); }
  std::string sample_name(std::uint64_t id) const override { return base_->sample_name(order_.at(0, first_ + id)); }
  bool cheap() const override { return base_->cheap(); }

 private:
  std::shared_ptr<const Dataset> base_;
  Sampler order_;
  std::uint64_t first_;
  std::uint64_t count_;
};

struct ValidationSplit {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> validation;
};
/// Sets a fraction aside: every sample is in exactly one of the two, chosen by the seed alone. Throws InputError unless
/// both parts get a sample.
ValidationSplit split_validation(const std::shared_ptr<const Dataset>& dataset, double fraction, std::uint64_t seed);

struct Augmentation {
  int crop_padding = 0;  ///< shifts by up to this many pixels each way; what comes in from outside is 0
  bool flip = false;     ///< mirrors left to right, every second time
};

/// Random crops and mirror images of a data set of images (channels x height x width): a function of (seed, epoch,
/// sample). Put it above a normalisation, so that its 0 is the mean.
class Augmented final : public Dataset {
 public:
  /// Throws InputError when the samples are not images or the padding is negative.
  Augmented(std::shared_ptr<const Dataset> base, const Augmentation& augmentation, std::uint64_t seed);

  const SampleSpec& spec() const override { return base_->spec(); }
  std::uint64_t size() const override { return base_->size(); }
  void read(std::span<const std::uint64_t> ids, std::uint64_t epoch, Batch& batch) const override;
  std::vector<std::string> class_names() const override { return base_->class_names(); }
  std::string sample_name(std::uint64_t id) const override { return base_->sample_name(id); }
  bool cheap() const override { return base_->cheap(); }

 private:
  std::shared_ptr<const Dataset> base_;
  Augmentation augmentation_;
  CounterRandom random_;
};

/// The data set with (value - mean) / deviation in each channel; arrays do it while they convert, others in a second
/// pass. Sparse rows and indices stay as they are. Throws InputError when the number of channels does not fit.
std::shared_ptr<const Dataset> normalize(std::shared_ptr<const Dataset> dataset, const Normalization& normalization);

}  // namespace distbelief
