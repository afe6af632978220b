#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace distbelief {

/// What the target of a table or an array is.
enum class TargetKind {
  automatic,  ///< classes when all are whole numbers below 10,000 or all are words; otherwise values
  classes,
  values,
};

/// Which data are wanted, and how they are to be read. What does not concern a format is not looked at.
struct DataRequest {
  std::string source = {};       ///< a name of known_data(), a file, a folder, or "synthetic:key=value,..."
  std::string test_source = {};  ///< a file or folder for the test part, when `source` has none of its own
  std::vector<std::filesystem::path> folders = {};  ///< where named sets are looked for, besides the system's place
  bool labelled = true;           ///< false: only inputs are needed (prediction); targets may be missing
  std::int64_t image_height = 0;  ///< image files are brought to this size; 0: that of the first image
  std::int64_t image_width = 0;
  std::int64_t image_channels = 3;  ///< 1 or 3
  std::string label_column = {};  ///< CSV: name or number (from 1); empty: "label", "class" or "target", else the last
  TargetKind target = TargetKind::automatic;  ///< CSV, LIBSVM, NPY
  std::int64_t classes = 0;   ///< how many there are, when the data may not show all; 0: as many as seen
  std::int64_t features = 0;  ///< LIBSVM: columns; 0: the largest index seen
  /// Samples must look like this one's: sizes of images, columns, classes and their names are taken from it. For data
  /// that a trained model is to be used on. Borrowed during the call; only spec() and class_names() are looked at.
  const Dataset* like = nullptr;
  std::uint64_t memory_limit = std::uint64_t{1} << 30;  ///< tables with more bytes than this are parsed on every read
};

/// Shared pointers: a Trainer makes subsets and decorators of them, which share the base.
struct DataSplits {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> test;  ///< null when the source has no test part
  std::string name;                     ///< short, for summaries
  std::string description;              ///< one line: kind, shape, counts
};

/// Throws InputError when the source is unknown (naming what is known, and the nearest spelling) and FileError when its
/// files are broken.
DataSplits open_data(const DataRequest& request);

/// A data set that can be asked for by name.
struct KnownData {
  std::string name;
  std::string description;
  std::uint64_t train_samples = 0;
  std::uint64_t test_samples = 0;
  std::filesystem::path folder;  ///< where it was found; empty when it is not there
  std::string how_to_get;
};
std::vector<KnownData> known_data(const std::vector<std::filesystem::path>& folders = {});

/// Whether a file of this name is a table of numbers: CSV or LIBSVM, also with .gz.
bool is_table_file(const std::filesystem::path& path);

}  // namespace distbelief
