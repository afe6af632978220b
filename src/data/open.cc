#include "data/open.h"

#include <algorithm>
#include <cctype>
#include <numeric>

#include "base/error.h"
#include "base/utf8_text.h"
#include "data/formats/cifar.h"
#include "data/formats/csv.h"
#include "data/formats/idx.h"
#include "data/formats/image_folder.h"
#include "data/formats/libsvm.h"
#include "data/formats/npy.h"
#include "data/synthetic.h"

namespace distbelief {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kFashionNames = {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
                                                "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot"};
const std::vector<std::string> kDigitNames = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};

constexpr std::string_view kTableEndings[] = {".csv", ".tsv", ".libsvm", ".svm", ".svmlight"};

/// How many letters must change to make one word of the other (Levenshtein).
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t change = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({change, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

[[noreturn]] void fail_unknown(const DataRequest& request) {
  std::string names;
  std::string nearest;
  std::size_t nearest_distance = 4;  // farther words are no misspellings
  for (const KnownData& known : known_data(request.folders)) {
    names += (names.empty() ? "" : ", ") + known.name;
    const std::size_t letters = distance(request.source, known.name);
    if (letters < nearest_distance) {
      nearest_distance = letters;
      nearest = known.name;
    }
  }
  throw InputError(fmt::format("data '{}': no such file, folder or known name{}; known names: {}, synthetic:...",
                               request.source, nearest.empty() ? "" : fmt::format(" (did you mean '{}'?)", nearest),
                               names));
}

TextOptions text_options(const DataRequest& request, const Dataset* like) {
  return {request.labelled,
          request.label_column,
          request.target,
          request.classes,
          request.features,
          request.memory_limit,
          like};
}

/// With the endings in lower case and without .gz.
std::string plain_name(const fs::path& path) {
  std::string name = path.filename().string();
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name.ends_with(".gz") ? name.substr(0, name.size() - 3) : name;
}

std::shared_ptr<const Dataset> open_npy_file(const fs::path& path, const DataRequest& request, const Dataset* like) {
  const NpyOptions options{request.target, like != nullptr ? like->spec().classes : request.classes,
                           request.memory_limit};
  if (!request.labelled) {
    return open_npy(open_file_bytes(path), nullptr, options);
  }
  const fs::path labels = find_npy_labels(path);
  if (labels.empty()) {
    throw FileError(
        fmt::format("{}: its labels are missing: expected {}_labels.npy beside it, or the pair x.npy and y.npy",
                    path.string(), path.stem().string()));
  }
  const FileBytes label_bytes = open_file_bytes(labels);
  return open_npy(open_file_bytes(path), &label_bytes, options);
}

std::shared_ptr<const Dataset> open_idx_file(const fs::path& path, const DataRequest& request, const Dataset* like) {
  if (!request.labelled) {
    return open_idx(open_file_bytes(path));
  }
  std::string labels = path.filename().string();
  const std::size_t at = labels.find("images-idx3");
  if (at == std::string::npos) {
    throw FileError(
        fmt::format("{}: expected images-idx3 in its name, so that labels-idx1 is its labels' name", path.string()));
  }
  labels.replace(at, 11, "labels-idx1");
  return open_idx(open_file_bytes(path), open_file_bytes(path.parent_path() / labels),
                  like != nullptr ? like->spec().classes : request.classes);
}

ImageOptions image_options(const DataRequest& request, const Dataset* like) {
  if (like != nullptr && like->spec().input.rank() == 3) {
    const Shape& shape = like->spec().input;
    return {shape[1], shape[2], shape[0]};
  }
  return {request.image_height, request.image_width, request.image_channels};
}

/// `like` is the training part when this is the test part, otherwise null.
std::shared_ptr<const Dataset> open_file(const fs::path& path, const DataRequest& request, const Dataset* like) {
  const std::string name = plain_name(path);
  if (is_table_file(path)) {
    if (name.ends_with(".csv") || name.ends_with(".tsv")) {
      return open_csv(open_file_bytes(path), text_options(request, like));
    }
    return open_libsvm(open_file_bytes(path), text_options(request, like));
  }
  if (name.ends_with(".npy")) {
    return open_npy_file(path, request, like);
  }
  if (name.ends_with("-ubyte") || name.ends_with(".idx")) {
    return open_idx_file(path, request, like);
  }
  if (is_image_file(path)) {
    if (request.labelled) {
      throw FileError(fmt::format("{}: one image has no class: expected a folder of class folders", path.string()));
    }
    return open_images(path, image_options(request, like));
  }
  throw FileError(
      fmt::format("{}: unknown kind of file: expected .csv, .tsv, .libsvm, .svm, .npy, -ubyte (these also with "
                  ".gz), .jpg or .png",
                  path.string()));
}

/// The first of these names that is there; empty when none is.
fs::path first_of(const fs::path& folder, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (fs::exists(folder / name)) {
      return folder / name;
    }
  }
  return {};
}

std::vector<std::string> table_names(const std::string& stem) {
  std::vector<std::string> names;
  for (const std::string_view ending : kTableEndings) {
    names.push_back(stem + std::string(ending));
    names.push_back(names.back() + ".gz");
  }
  return names;
}

/// A class without a sample is a mistake of whoever put the data together. Folders of folders are something else.
void expect_no_empty_folder(const fs::path& folder) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (!entry.is_directory(ignored) || entry.path().filename().string().starts_with('.')) {
      continue;
    }
    const fs::directory_iterator inside(entry.path(), ignored);
    if (std::none_of(begin(inside), end(inside), [](const auto& one) {
          return one.is_directory() || (is_image_file(one.path()) && one.is_regular_file());
        })) {
      throw FileError(fmt::format("{}: a class without images: expected .jpg, .jpeg or .png files, or no such folder",
                                  entry.path().string()));
    }
  }
}

std::shared_ptr<const Dataset> open_class_folders(const fs::path& folder, const DataRequest& request,
                                                  const Dataset* like) {
  const std::vector<std::string> found = find_class_folders(folder);
  const bool trained = like != nullptr && request.labelled;
  if (request.labelled && !trained) {
    expect_no_empty_folder(folder);
  }
  std::vector<std::string> classes = trained ? like->class_names() : found;
  for (const std::string& name : found) {
    if (std::find(classes.begin(), classes.end(), name) != classes.end()) {
      continue;
    }
    // A model's names went through JSON, which has UTF-8 only; the folders have their own.
    const auto meant = std::find(classes.begin(), classes.end(), utf8_text(name));
    if (meant == classes.end()) {
      throw FileError(fmt::format("{}: class '{}' is none of the training folder's", folder.string(), name));
    }
    *meant = name;
  }
  return open_image_folder(folder, classes, image_options(request, like));
}

DataSplits open_folder(const fs::path& folder, const DataRequest& request) {
  if (is_idx_folder(folder)) {
    const IdxSplits splits = open_idx_folder(folder);
    return {splits.train, splits.test, {}, {}};
  }
  if (is_cifar10_folder(folder)) {
    const CifarSplits splits = open_cifar10_folder(folder);
    return {splits.train, splits.test, {}, {}};
  }
  DataSplits splits;
  const auto open_both = [&](const fs::path& train, const fs::path& test) {
    splits.train = open_file(train, request, request.like);
    splits.test = test.empty() ? nullptr : open_file(test, request, splits.train.get());
    return splits;
  };
  if (const fs::path npy = first_of(folder, {"x_train.npy", "X_train.npy", "x.npy", "X.npy"}); !npy.empty()) {
    return open_both(npy, first_of(folder, {"x_test.npy", "X_test.npy"}));
  }
  std::vector<std::string> test_tables = table_names("test");
  for (const std::string& name : table_names("val")) {
    test_tables.push_back(name);
  }
  if (const fs::path table = first_of(folder, table_names("train")); !table.empty()) {
    return open_both(table, first_of(folder, test_tables));
  }
  if (!find_class_folders(folder / "train").empty()) {
    splits.train = open_class_folders(folder / "train", request, request.like);
    if (const fs::path test = first_of(folder, {"test", "val", "validation"}); !test.empty()) {
      splits.test = open_class_folders(test, request, splits.train.get());
    }
    return splits;
  }
  if (!find_class_folders(folder).empty()) {
    splits.train = open_class_folders(folder, request, request.like);
    return splits;
  }
  if (!request.labelled) {
    splits.train = open_images(folder, image_options(request, request.like));
    return splits;
  }
  throw FileError(
      fmt::format("{}: no data found: expected train-images-idx3-ubyte[.gz], data_batch_*.bin, x_train.npy, x.npy, "
                  "train.csv, train.libsvm, or a folder of JPEG or PNG files for each class",
                  folder.string()));
}

DataSplits open_known(const KnownData& known, const DataRequest& request) {
  if (known.folder.empty()) {
    throw InputError(fmt::format("data '{}': not on this machine; {}", known.name, known.how_to_get));
  }
  if (known.name == "fashion-mnist" || known.name == "mnist") {
    const IdxSplits splits = open_idx_folder(known.folder, known.name == "mnist" ? kDigitNames : kFashionNames);
    return {splits.train, splits.test, known.name, {}};
  }
  return open_folder(known.folder, request);
}

std::shared_ptr<const Dataset> open_test(const DataRequest& request, const Dataset& train) {
  const fs::path path = request.test_source;
  if (fs::is_regular_file(path)) {
    return open_file(path, request, &train);
  }
  if (fs::is_directory(path) && !find_class_folders(path).empty()) {
    return open_class_folders(path, request, &train);
  }
  throw InputError(fmt::format("test data '{}': expected a file, or a folder of class folders", request.test_source));
}

std::string describe(const SampleSpec& spec) {
  std::string target = "no targets";
  if (spec.classes > 0) {
    target = fmt::format("{} classes", spec.classes);
  } else if (spec.targets > 0) {
    target = fmt::format("{} value{}", spec.targets, spec.targets == 1 ? "" : "s");
  }
  const char* kind = spec.sparse ? "sparse rows of " : spec.indices ? "indices of " : "";
  return fmt::format("{}{}, {}", kind, spec.input.text(), target);
}

void check_test_fits(const Dataset& train, const Dataset& test, const std::string& source) {
  const SampleSpec& a = train.spec();
  const SampleSpec& b = test.spec();
  if (a.input != b.input || a.sparse != b.sparse || a.indices != b.indices || a.classes != b.classes ||
      a.targets != b.targets) {
    throw FileError(
        fmt::format("data '{}': test samples are {}, but training samples are {}", source, describe(b), describe(a)));
  }
}

/// "images/" is called images, too.
std::string file_name(const fs::path& path) {
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

std::string describe(const DataSplits& splits) {
  return fmt::format("{}, {} samples{}", describe(splits.train->spec()), splits.train->size(),
                     splits.test ? fmt::format(" and {} for testing", splits.test->size()) : "");
}

}  // namespace

bool is_table_file(const fs::path& path) {
  const std::string name = plain_name(path);
  return std::ranges::any_of(kTableEndings, [&](std::string_view ending) { return name.ends_with(ending); });
}

std::vector<KnownData> known_data(const std::vector<fs::path>& folders) {
  const fs::path system = "/usr/share/datasets";
  std::vector<KnownData> known = {
      {"fashion-mnist",
       "grey images of clothes, 1x28x28, 10 classes",
       60000,
       10000,
       {},
       "apt install dataset-fashion-mnist"},
      {"mnist",
       "grey images of handwritten digits, 1x28x28, 10 classes",
       60000,
       10000,
       {},
       "put its four IDX files into a folder called mnist and name the folder above it with --data-dir"},
      {"cifar10",
       "colour images of things and animals, 3x32x32, 10 classes",
       50000,
       10000,
       {},
       "unpack cifar-10-binary.tar.gz and name the folder above cifar-10-batches-bin with --data-dir"}};
  for (KnownData& set : known) {
    std::vector<fs::path> candidates;
    for (const fs::path& folder : folders) {
      candidates.push_back(folder / set.name);
      if (set.name == "cifar10") {
        candidates.push_back(folder / "cifar-10-batches-bin");
      }
    }
    candidates.push_back(system / set.name);
    for (const fs::path& candidate : candidates) {
      std::error_code ignored;
      if (fs::is_directory(candidate, ignored)) {
        set.folder = candidate;
        break;
      }
    }
  }
  return known;
}

DataSplits open_data(const DataRequest& request) {
  constexpr std::string_view kSynthetic = "synthetic";
  DataSplits splits;
  const std::vector<KnownData> known = known_data(request.folders);
  const auto named =
      std::find_if(known.begin(), known.end(), [&](const auto& set) { return set.name == request.source; });
  if (request.source == kSynthetic || request.source.starts_with("synthetic:")) {
    const SyntheticSplits made = make_synthetic(parse_synthetic(
        std::string_view(request.source).substr(std::min(kSynthetic.size() + 1, request.source.size()))));
    splits = {made.train, made.test, "synthetic", {}};
  } else if (named != known.end()) {
    splits = open_known(*named, request);
  } else if (fs::is_directory(request.source)) {
    splits = open_folder(request.source, request);
  } else if (fs::exists(request.source)) {
    splits.train = open_file(request.source, request, request.like);
  } else {
    fail_unknown(request);
  }
  if (!request.test_source.empty()) {
    splits.test = open_test(request, *splits.train);
  }
  if (splits.test) {
    check_test_fits(*splits.train, *splits.test, request.source);
  }
  if (splits.name.empty()) {
    splits.name = named != known.end() ? named->name : file_name(request.source);
  }
  splits.description = describe(splits);
  return splits;
}

}  // namespace distbelief
