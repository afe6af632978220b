#include "data/formats/cifar.h"

#include <algorithm>

#include "base/error.h"
#include "data/array_dataset.h"

namespace distbelief {
namespace {

constexpr std::size_t kImageBytes = std::size_t{3} * 32 * 32;
constexpr std::size_t kRecordBytes = 1 + kImageBytes;
constexpr int kClasses = 10;

std::vector<std::filesystem::path> training_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("data_batch_") && name.ends_with(".bin")) {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

std::shared_ptr<const Dataset> open_cifar10(const std::vector<FileBytes>& files) {
  ArrayDataset::Contents contents;
  contents.spec.input = Shape{3, 32, 32};
  contents.spec.classes = kClasses;
  contents.class_names = {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"};
  for (const FileBytes& file : files) {
    const std::size_t records = file.bytes.size() / kRecordBytes;
    if (records == 0 || file.bytes.size() % kRecordBytes != 0) {
      throw FileError(
          fmt::format("{}: {} bytes: expected records of {} bytes (a label and a 3x32x32 image); the file is "
                      "truncated or no CIFAR-10 file",
                      file.name, file.bytes.size(), kRecordBytes));
    }
    for (std::size_t i = 0; i < records; ++i) {
      const int label = std::to_integer<int>(file.bytes[i * kRecordBytes]);
      if (label >= kClasses) {
        throw FileError(fmt::format("{}: byte {}: label {}: expected 0 to 9", file.name, i * kRecordBytes, label));
      }
      contents.targets.classes.push_back(label);
    }
    contents.blocks.push_back({file.owner, file.bytes.data() + 1, kRecordBytes, records});
  }
  return std::make_shared<ArrayDataset>(std::move(contents));
}

bool is_cifar10_folder(const std::filesystem::path& folder) { return !training_files(folder).empty(); }

CifarSplits open_cifar10_folder(const std::filesystem::path& folder) {
  std::vector<FileBytes> files;
  for (const std::filesystem::path& path : training_files(folder)) {
    files.push_back(open_file_bytes(path));
  }
  CifarSplits splits;
  splits.train = open_cifar10(files);
  if (const auto test = folder / "test_batch.bin"; std::filesystem::exists(test)) {
    splits.test = open_cifar10({open_file_bytes(test)});
  }
  return splits;
}

}  // namespace distbelief
