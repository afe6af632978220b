#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace distbelief {

struct ImageOptions {
  std::int64_t height = 0;  ///< 0: that of the first image
  std::int64_t width = 0;
  std::int64_t channels = 3;  ///< 1 or 3
};

/// The names of the folders in `folder` that hold a .jpg, .jpeg or .png, sorted; these are its classes.
std::vector<std::string> find_class_folders(const std::filesystem::path& folder);

/// Images in one folder for each class; the folders `classes` that are missing have no samples. Files are ordered by
/// class and name; they are decoded when read (so by the loader's threads) and brought to one size by fit_image().
/// Throws FileError when there are no images or the first is broken; others are found broken when read.
std::shared_ptr<const Dataset> open_image_folder(const std::filesystem::path& folder,
                                                 const std::vector<std::string>& classes, const ImageOptions& options);

/// The images of a folder (not of the folders in it) or one image file, without classes.
std::shared_ptr<const Dataset> open_images(const std::filesystem::path& path, const ImageOptions& options);

/// These image files (at least one), in this order, without classes.
std::shared_ptr<const Dataset> open_image_files(std::vector<std::filesystem::path> files, const ImageOptions& options);

/// By its name.
bool is_image_file(const std::filesystem::path& path);

}  // namespace distbelief
