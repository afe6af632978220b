#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/array_dataset.h"
#include "data/formats/file_bytes.h"

namespace distbelief {

/// An array of unsigned bytes as LeCun's MNIST files hold it: two zero bytes, a type (8: unsigned byte), the number of
/// dimensions, each dimension as a big-endian 32-bit integer, the values.
struct IdxArray {
  std::vector<std::int64_t> dims;
  std::span<const std::byte> values;  ///< inside the file's bytes
};

/// Throws FileError when the header is wrong or does not agree with the size.
IdxArray parse_idx(const FileBytes& file);

/// Images (N x H x W, or N x C x H x W; N x D gives rows) with one label each, below `classes`; 0 means: as many
/// classes as the labels show. Throws FileError.
std::shared_ptr<const Dataset> open_idx(const FileBytes& images, const FileBytes& labels, std::int64_t classes = 0,
                                        const std::vector<std::string>& class_names = {});
/// The same without labels.
std::shared_ptr<const Dataset> open_idx(const FileBytes& images);

struct IdxSplits {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> test;  ///< null when the folder has none
};
/// True when the folder holds train-images-idx3-ubyte or train-images-idx3-ubyte.gz.
bool is_idx_folder(const std::filesystem::path& folder);
/// The files by their usual names: train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and
/// t10k-labels-idx1-ubyte, each plain or with .gz. Throws FileError.
IdxSplits open_idx_folder(const std::filesystem::path& folder, const std::vector<std::string>& class_names = {});

}  // namespace distbelief
