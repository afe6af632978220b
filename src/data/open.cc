#include "data/open.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "data/formats/idx.h"
#include "data/synthetic.h"

namespace distbelief {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kFashionNames = {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
                                                "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot"};
const std::vector<std::string> kDigitNames = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};

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

DataSplits open_folder(const fs::path& folder, const DataRequest& request);

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

DataSplits open_folder(const fs::path& folder, const DataRequest&) {
  if (is_idx_folder(folder)) {
    const IdxSplits splits = open_idx_folder(folder);
    return {splits.train, splits.test, {}, {}};
  }
  throw FileError(fmt::format("{}: no data found in this folder", folder.string()));
}

std::string describe(const DataSplits& splits) {
  const SampleSpec& spec = splits.train->spec();
  std::string target = "no targets";
  if (spec.classes > 0) {
    target = fmt::format("{} classes", spec.classes);
  } else if (spec.targets > 0) {
    target = fmt::format("{} value{}", spec.targets, spec.targets == 1 ? "" : "s");
  }
  const char* kind = spec.sparse ? "sparse rows of " : spec.indices ? "indices of " : "";
  return fmt::format("{}{}, {}, {} samples{}", kind, spec.input.text(), target, splits.train->size(),
                     splits.test ? fmt::format(" and {} for testing", splits.test->size()) : "");
}

}  // namespace

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
       "put its four IDX files into a folder called mnist and name the folder above it as data folder"},
      {"cifar10",
       "colour images of things and animals, 3x32x32, 10 classes",
       50000,
       10000,
       {},
       "unpack cifar-10-binary.tar.gz and name the folder above cifar-10-batches-bin as data folder"}};
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
  } else {
    fail_unknown(request);
  }
  if (splits.name.empty()) {
    splits.name = named != known.end() ? named->name : fs::path(request.source).filename().string();
  }
  splits.description = describe(splits);
  return splits;
}

}  // namespace distbelief
