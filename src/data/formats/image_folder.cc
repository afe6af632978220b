#include "data/formats/image_folder.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "data/formats/image.h"

namespace distbelief {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> images_in(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (is_image_file(entry->path()) && entry->is_regular_file()) {
      files.push_back(entry->path());
    }
  }
  if (error) {
    throw FileError(fmt::format("{}: cannot list the folder: {}", folder.string(), error.message()));
  }
  std::sort(files.begin(), files.end());
  return files;
}

class ImageDataset final : public Dataset {
 public:
  ImageDataset(std::vector<fs::path> files, std::vector<std::int32_t> labels, std::vector<std::string> names,
               const ImageOptions& options)
      : files_(std::move(files)), labels_(std::move(labels)), names_(std::move(names)) {
    const MappedFile first(files_.front());
    const Image image = decode_image(first.bytes(), files_.front().string());
    spec_.input = Shape{options.channels, options.height > 0 ? options.height : image.height,
                        options.width > 0 ? options.width : image.width};
    spec_.classes = static_cast<std::int64_t>(names_.size());
  }

  const SampleSpec& spec() const override { return spec_; }
  std::uint64_t size() const override { return files_.size(); }
  std::vector<std::string> class_names() const override { return names_; }
  std::string sample_name(std::uint64_t id) const override { return files_.at(id).string(); }
  bool cheap() const override { return false; }

  void read(std::span<const std::uint64_t> ids, std::uint64_t epoch, Batch& batch) const override {
    start_batch(spec_, ids, epoch, batch);
    const Shape& shape = spec_.input;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const fs::path& path = files_.at(ids[i]);
      const MappedFile file(path);
      const Image image = decode_image(file.bytes(), path.string(), shape[1], shape[2]);
      fit_image(image, shape[0], shape[1], shape[2],
                batch.dense.data() + static_cast<std::int64_t>(i) * shape.elements());
      if (spec_.classes > 0) {
        batch.classes[i] = labels_[ids[i]];
      }
    }
  }

 private:
  std::vector<fs::path> files_;
  std::vector<std::int32_t> labels_;
  std::vector<std::string> names_;
  SampleSpec spec_;
};

void check_options(const ImageOptions& options) {
  constexpr std::int64_t kMostSide = 1 << 14;
  if (options.channels != 1 && options.channels != 3) {
    throw InputError(fmt::format("image channels: expected 1 or 3, not {}", options.channels));
  }
  if (options.height < 0 || options.height > kMostSide || options.width < 0 || options.width > kMostSide) {
    throw InputError(
        fmt::format("image size: expected sides from 1 to {}, not {}x{}", kMostSide, options.height, options.width));
  }
}

}  // namespace

bool is_image_file(const fs::path& path) {
  std::string extension = path.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return extension == ".jpg" || extension == ".jpeg" || extension == ".png";
}

std::vector<std::string> find_class_folders(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (!entry.is_directory()) {
      continue;
    }
    const fs::directory_iterator files(entry.path(), ignored);
    if (std::any_of(begin(files), end(files),
                    [](const auto& file) { return is_image_file(file.path()) && file.is_regular_file(); })) {
      names.push_back(entry.path().filename().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::shared_ptr<const Dataset> open_image_folder(const fs::path& folder, const std::vector<std::string>& classes,
                                                 const ImageOptions& options) {
  check_options(options);
  std::vector<fs::path> files;
  std::vector<std::int32_t> labels;
  for (std::size_t c = 0; c < classes.size(); ++c) {
    if (!fs::is_directory(folder / classes[c])) {
      continue;
    }
    for (fs::path& file : images_in(folder / classes[c])) {
      files.push_back(std::move(file));
      labels.push_back(static_cast<std::int32_t>(c));
    }
  }
  if (files.empty()) {
    throw FileError(
        fmt::format("{}: expected one folder for each class, with .jpg, .jpeg or .png files", folder.string()));
  }
  return std::make_shared<ImageDataset>(std::move(files), std::move(labels), classes, options);
}

std::shared_ptr<const Dataset> open_images(const fs::path& path, const ImageOptions& options) {
  std::vector<fs::path> files = fs::is_directory(path) ? images_in(path) : std::vector<fs::path>{path};
  if (files.empty()) {
    throw FileError(fmt::format("{}: expected .jpg, .jpeg or .png files in this folder", path.string()));
  }
  return open_image_files(std::move(files), options);
}

std::shared_ptr<const Dataset> open_image_files(std::vector<fs::path> files, const ImageOptions& options) {
  check_options(options);
  return std::make_shared<ImageDataset>(std::move(files), std::vector<std::int32_t>{}, std::vector<std::string>{},
                                        options);
}

}  // namespace distbelief
