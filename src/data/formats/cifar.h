#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "data/dataset.h"
#include "data/formats/file_bytes.h"

namespace distbelief {

/// Files of CIFAR-10's binary version: records of one label byte (0 to 9) and 3x32x32 bytes of red, green and blue.
/// Throws FileError.
std::shared_ptr<const Dataset> open_cifar10(const std::vector<FileBytes>& files);

struct CifarSplits {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> test;  ///< null when there is no test_batch.bin
};
/// True when the folder holds a data_batch_*.bin.
bool is_cifar10_folder(const std::filesystem::path& folder);
/// data_batch_*.bin in the order of their names, and test_batch.bin.
CifarSplits open_cifar10_folder(const std::filesystem::path& folder);

}  // namespace distbelief
