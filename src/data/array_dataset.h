#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace distbelief {

/// How the numbers of an array are stored, little-endian.
enum class ArrayElement { u8, i32, i64, f32, f64 };
std::size_t bytes_of(ArrayElement type);

/// Rows of numbers at equal distance in memory or in a mapped file. Not necessarily aligned.
struct RowBlock {
  std::shared_ptr<const void> owner;  ///< shared: keeps the memory for whoever still reads
  const std::byte* first = nullptr;
  std::size_t stride = 0;  ///< bytes from one row to the next
  std::uint64_t rows = 0;
};

/// What the samples are to predict: one class or `spec.targets` floats for each row, or nothing.
struct ArrayTargets {
  std::vector<std::int32_t> classes;
  std::vector<float> values;
};

/// Samples that lie in arrays of one element type, in one block after the other. Bytes become value / 255, integers
/// become indices, floats stay; a normalisation costs nothing more, being part of that conversion.
class ArrayDataset final : public Dataset {
 public:
  struct Contents {
    SampleSpec spec;
    ArrayElement type = ArrayElement::u8;
    std::vector<RowBlock> blocks;
    ArrayTargets targets;
    std::vector<std::string> class_names;
    bool in_memory = true;  ///< or small enough to soon be
  };

  /// `contents` fit together: as many targets as rows, classes below spec.classes.
  explicit ArrayDataset(Contents contents);

  const SampleSpec& spec() const override { return contents_.spec; }
  std::uint64_t size() const override { return size_; }
  void read(std::span<const std::uint64_t> ids, std::uint64_t epoch, Batch& batch) const override;
  std::vector<std::string> class_names() const override { return contents_.class_names; }
  bool cheap() const override { return contents_.in_memory; }

  /// The same samples, normalised; shares the memory. Nothing to gain for indices: the caller does not ask.
  std::shared_ptr<const ArrayDataset> normalized(const Normalization& normalization) const;

 private:
  template <typename T>
  void gather_floats(std::span<const std::uint64_t> ids, float* out) const;
  template <typename T>
  void gather_indices(std::span<const std::uint64_t> ids, std::int32_t* out) const;
  const std::byte* row(std::uint64_t id) const;

  Contents contents_;
  std::uint64_t size_ = 0;
  // Each element is value * scale + offset of its channel (dimension 0).
  std::vector<float> scale_;
  std::vector<float> offset_;
  bool identity_ = false;  // scale 1 and offset 0 throughout
};

}  // namespace distbelief
