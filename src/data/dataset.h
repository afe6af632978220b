#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tensor/batch.h"

namespace distbelief {

/// A finite set of samples with random access. Immutable; all methods are thread-safe.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual const SampleSpec& spec() const = 0;
  virtual std::uint64_t size() const = 0;

  /// Fills `batch` (ids, epoch and the vectors that spec() implies) with these samples, in this order; reuses its
  /// memory. `ids` are below size() and are not batch.ids itself. `epoch` matters only to random augmentation. Throws
  /// FileError when a lazily read file turns out to be broken; the batch then holds nothing useful.
  virtual void read(std::span<const std::uint64_t> ids, std::uint64_t epoch, Batch& batch) const = 0;

  /// What the classes are called; empty when unknown, otherwise spec().classes names.
  virtual std::vector<std::string> class_names() const { return {}; }
  /// What a person would call one sample: its file, or its number.
  virtual std::string sample_name(std::uint64_t id) const { return std::to_string(id); }
  /// True when reading is little more than copying from memory, so that threads of a loader would not pay.
  virtual bool cheap() const { return true; }
};

/// Sets ids and epoch, gives the vectors that `spec` implies their size for these samples, and empties the others.
void start_batch(const SampleSpec& spec, std::span<const std::uint64_t> ids, std::uint64_t epoch, Batch& batch);

/// Mean and deviation of each channel: of dimension 0 of the input, so of each feature when the input is a plain row.
/// One value alone holds for all channels.
struct Normalization {
  std::vector<float> mean;
  std::vector<float> deviation;
};

/// Measures at most `most` samples, spread evenly. A channel that never changes gets deviation 1. Nothing (empty
/// vectors) for sparse rows and indices.
Normalization measure_normalization(const Dataset& dataset, std::uint64_t most = 10000);

}  // namespace distbelief
