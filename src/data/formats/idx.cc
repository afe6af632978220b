#include "data/formats/idx.h"

#include <algorithm>
#include <future>

#include "base/bytes.h"
#include "base/error.h"

namespace distbelief {
namespace {

constexpr unsigned kUnsignedByte = 0x08;
constexpr std::size_t kLargeFile = std::size_t{1} << 30;  // beyond this, reading may have to wait for the disk

ArrayDataset::Contents image_contents(const FileBytes& file) {
  const IdxArray array = parse_idx(file);
  if (array.dims.size() < 2 || array.dims.size() > 4) {
    throw FileError(fmt::format("{}: byte 3: expected images, in 2 to 4 dimensions, but the file has {}", file.name,
                                array.dims.size()));
  }
  std::vector<std::int64_t> sample(array.dims.begin() + 1, array.dims.end());
  if (sample.size() == 2) {
    sample.insert(sample.begin(), 1);  // one channel
  }
  ArrayDataset::Contents contents;
  contents.spec.input = Shape(std::move(sample));
  const std::size_t stride = static_cast<std::size_t>(contents.spec.input.elements());
  contents.blocks.push_back({file.owner, array.values.data(), stride, static_cast<std::uint64_t>(array.dims[0])});
  contents.in_memory = array.values.size() <= kLargeFile;
  return contents;
}

std::filesystem::path find_plain_or_gz(const std::filesystem::path& folder, const std::string& name) {
  for (const char* suffix : {"", ".gz"}) {
    const std::filesystem::path path = folder / (name + suffix);
    if (std::filesystem::exists(path)) {
      return path;
    }
  }
  return {};
}

struct SplitFiles {
  FileBytes images;
  FileBytes labels;
};

SplitFiles open_split(const std::filesystem::path& folder, const std::string& split) {
  const auto open_one = [&](const std::string& name) {
    const std::filesystem::path path = find_plain_or_gz(folder, name);
    if (path.empty()) {
      throw FileError(fmt::format("{}: expected {} or {}.gz in this folder", folder.string(), name, name));
    }
    return open_file_bytes(path);
  };
  return {open_one(split + "-images-idx3-ubyte"), open_one(split + "-labels-idx1-ubyte")};
}

}  // namespace

IdxArray parse_idx(const FileBytes& file) {
  const auto bytes = file.bytes;
  if (bytes.size() < 4) {
    throw FileError(fmt::format("{}: expected an IDX header, but the file has {} bytes", file.name, bytes.size()));
  }
  const unsigned type = std::to_integer<unsigned>(bytes[2]);
  const std::size_t rank = std::to_integer<std::size_t>(bytes[3]);
  if (bytes[0] != std::byte{0} || bytes[1] != std::byte{0}) {
    throw FileError(
        fmt::format("{}: byte 0: not an IDX file: expected it to begin with two zero bytes, not {:02x} {:02x}",
                    file.name, std::to_integer<unsigned>(bytes[0]), std::to_integer<unsigned>(bytes[1])));
  }
  if (type != kUnsignedByte) {
    throw FileError(fmt::format("{}: byte 2: expected IDX type 08 (unsigned bytes), not {:02x}", file.name, type));
  }
  const std::size_t header = 4 + 4 * rank;
  if (rank == 0 || bytes.size() < header) {
    throw FileError(
        fmt::format("{}: byte 3: {} dimensions do not fit a file of {} bytes", file.name, rank, bytes.size()));
  }
  IdxArray array;
  array.values = bytes.subspan(header);
  std::uint64_t expected = 1;
  for (std::size_t i = 0; i < rank; ++i) {
    const std::uint64_t dim = read_big_endian<std::uint32_t>(bytes.data() + 4 + 4 * i);
    if (dim == 0) {
      throw FileError(
          fmt::format("{}: byte {}: dimension {} is 0: the file holds no samples", file.name, 4 + 4 * i, i));
    }
    // Checked before each product, so that it cannot overflow.
    if (expected > array.values.size() / dim) {
      throw FileError(
          fmt::format("{}: byte {}: the header promises more values than the {} bytes that follow: the file is "
                      "truncated or its header corrupt",
                      file.name, 4 + 4 * i, array.values.size()));
    }
    expected *= dim;
    array.dims.push_back(static_cast<std::int64_t>(dim));
  }
  if (expected != array.values.size()) {
    throw FileError(fmt::format("{}: expected {} bytes after the header of {}, but there are {}", file.name, expected,
                                header, array.values.size()));
  }
  return array;
}

std::shared_ptr<const Dataset> open_idx(const FileBytes& images, const FileBytes& labels, std::int64_t classes,
                                        const std::vector<std::string>& class_names) {
  ArrayDataset::Contents contents = image_contents(images);
  const IdxArray array = parse_idx(labels);
  if (array.dims.size() != 1) {
    throw FileError(fmt::format("{}: byte 3: expected labels, in 1 dimension, but the file has {}", labels.name,
                                array.dims.size()));
  }
  if (static_cast<std::uint64_t>(array.dims[0]) != contents.blocks[0].rows) {
    throw FileError(fmt::format("{}: {} labels, but {} has {} images", labels.name, array.dims[0], images.name,
                                contents.blocks[0].rows));
  }
  std::int64_t seen = 0;
  contents.targets.classes.reserve(array.values.size());
  for (std::size_t i = 0; i < array.values.size(); ++i) {
    const std::int64_t label = std::to_integer<std::int64_t>(array.values[i]);
    if (classes > 0 && label >= classes) {
      throw FileError(fmt::format("{}: label {} of image {}: expected 0 to {}", labels.name, label, i, classes - 1));
    }
    seen = std::max(seen, label + 1);
    contents.targets.classes.push_back(static_cast<std::int32_t>(label));
  }
  contents.spec.classes = classes > 0 ? classes : seen;
  contents.class_names = class_names;
  return std::make_shared<ArrayDataset>(std::move(contents));
}

std::shared_ptr<const Dataset> open_idx(const FileBytes& images) {
  return std::make_shared<ArrayDataset>(image_contents(images));
}

bool is_idx_folder(const std::filesystem::path& folder) {
  return !find_plain_or_gz(folder, "train-images-idx3-ubyte").empty();
}

IdxSplits open_idx_folder(const std::filesystem::path& folder, const std::vector<std::string>& class_names) {
  const bool has_test = !find_plain_or_gz(folder, "t10k-images-idx3-ubyte").empty();
  std::future<SplitFiles> test_files;
  if (has_test) {  // side by side: inflating is most of the time that opening takes
    test_files = std::async(std::launch::async, [&] { return open_split(folder, "t10k"); });
  }
  const SplitFiles train_files = open_split(folder, "train");
  IdxSplits splits;
  splits.train =
      open_idx(train_files.images, train_files.labels, static_cast<std::int64_t>(class_names.size()), class_names);
  if (has_test) {
    const SplitFiles files = test_files.get();
    splits.test = open_idx(files.images, files.labels, splits.train->spec().classes, class_names);
    if (splits.test->spec().input != splits.train->spec().input) {
      throw FileError(fmt::format("{}: images of {}, but the training images are {}", files.images.name,
                                  splits.test->spec().input.text(), splits.train->spec().input.text()));
    }
  }
  return splits;
}

}  // namespace distbelief
