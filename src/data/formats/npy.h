#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "data/array_dataset.h"
#include "data/formats/file_bytes.h"
#include "data/open.h"

namespace distbelief {

/// An array as numpy.save() writes it: versions 1 to 3, C order, little-endian u8, i32, i64, f32 or f64.
struct NpyArray {
  ArrayElement type = ArrayElement::u8;
  std::vector<std::int64_t> dims;
  std::span<const std::byte> values;  ///< inside the file's bytes
};

/// Throws FileError when the header is wrong, the kind is none of these, or the size does not agree.
NpyArray parse_npy(const FileBytes& file);

struct NpyOptions {
  TargetKind target = TargetKind::automatic;
  std::int64_t classes = 0;
  std::uint64_t memory_limit = std::uint64_t{1} << 30;
};

/// One sample for each entry of dimension 0 of `inputs`: u8 become value / 255, floats stay, integers are indices; N x
/// H x W are images of one channel, N x C x H x W of C. `labels`, when given, has as many entries: integers (N or N x
/// 1) are classes, floats (N or N x K) are values. Throws FileError.
std::shared_ptr<const Dataset> open_npy(const FileBytes& inputs, const FileBytes* labels, const NpyOptions& options);

/// Where the labels of x.npy are: y.npy when the name begins with x (x_train.npy: y_train.npy), otherwise
/// NAME_labels.npy beside NAME.npy. Empty when there is no such file.
std::filesystem::path find_npy_labels(const std::filesystem::path& inputs);

}  // namespace distbelief
