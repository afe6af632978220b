#include "checkpoint/checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>  // renameat2

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <set>
#include <system_error>

#include "base/bytes.h"
#include "base/check.h"
#include "base/error.h"
#include "base/file.h"

namespace distbelief {
namespace {

namespace fs = std::filesystem;

constexpr const char* kValues = "values.safetensors";
constexpr const char* kState = "state.safetensors";
constexpr const char* kManifest = "manifest.json";
constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kPartial = ".partial";
constexpr std::string_view kReplaced = ".replaced";

[[noreturn]] void fail(const fs::path& path, std::string_view action, std::string_view reason) {
  throw FileError(fmt::format("{}: cannot {}: {}", path.string(), action, reason));
}

void remove_folder(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) {
    fail(path, "remove", error.message());
  }
}

fs::path hidden(const fs::path& path, std::string_view suffix) {
  return path.parent_path() / fmt::format(".{}{}", path.filename().string(), suffix);
}

/// The step of a folder called "step-DIGITS"; nothing for other names.
std::optional<std::int64_t> step_of(const std::string& name) {
  if (name.rfind(kPrefix, 0) != 0 || name.size() == kPrefix.size()) {
    return std::nullopt;
  }
  std::int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto [at, error] = std::from_chars(name.data() + kPrefix.size(), end, step);
  return error == std::errc{} && at == end && step >= 0 ? std::optional(step) : std::nullopt;
}

std::vector<fs::path> entries(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> paths;
  fs::directory_iterator iterator(folder, error);
  if (error) {
    if (error == std::errc::no_such_file_or_directory) {
      return paths;
    }
    fail(folder, "list", error.message());
  }
  for (; !error && iterator != fs::directory_iterator(); iterator.increment(error)) {
    paths.push_back(iterator->path());
  }
  if (error) {
    fail(folder, "list", error.message());
  }
  return paths;
}

/// Folders named as checkpoints, newest first.
std::vector<fs::path> checkpoints_in(const fs::path& folder) {
  std::vector<std::pair<std::int64_t, fs::path>> found;
  for (const fs::path& path : entries(folder)) {
    if (const auto step = step_of(path.filename().string())) {
      found.emplace_back(*step, path);
    }
  }
  std::sort(found.begin(), found.end(), std::greater<>());
  std::vector<fs::path> paths;
  for (auto& [step, path] : found) {
    paths.push_back(std::move(path));
  }
  return paths;
}

/// A folder that is removed again unless it was put in place.
class PartialFolder {
 public:
  explicit PartialFolder(const fs::path& target) : target_(target), path_(hidden(target, kPartial)) {
    remove_folder(path_);
    std::error_code error;
    fs::create_directory(path_, error);
    if (error) {
      fail(path_, "create", error.message());
    }
  }
  ~PartialFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;

  const fs::path& path() const { return path_; }

  /// Gives the folder its name. What had that name is swapped for it in one stroke where the file system can, and
  /// otherwise set aside, from where remove_partial_checkpoints() restores it if we die in between.
  void put_in_place() {
    sync_folder(path_);
    if (::rename(path_.c_str(), target_.c_str()) != 0) {
      if (errno != ENOTEMPTY && errno != EEXIST) {
        fail(target_, "put in place", std::strerror(errno));
      }
      if (::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) != 0) {
        replace_in_two_steps();
      }
    }
    sync_folder(target_.parent_path());
  }

 private:
  void replace_in_two_steps() {
    const fs::path aside = hidden(target_, kReplaced);
    remove_folder(aside);
    if (::rename(target_.c_str(), aside.c_str()) != 0 || ::rename(path_.c_str(), target_.c_str()) != 0) {
      const std::string reason = std::strerror(errno);
      ::rename(aside.c_str(), target_.c_str());
      fail(target_, "replace", reason);
    }
    remove_folder(aside);
  }

  fs::path target_;
  fs::path path_;
};

FileSummary summary_of(std::span<const std::byte> bytes) { return {bytes.size(), crc32c(bytes)}; }

void verify(const fs::path& path, const CheckpointManifest& manifest, std::span<const std::byte> bytes) {
  const auto found = manifest.files.find(path.filename().string());
  if (found == manifest.files.end()) {
    throw FileError(fmt::format("{}: expected an entry in {}", path.string(), kManifest));
  }
  if (found->second.bytes != bytes.size()) {
    throw FileError(fmt::format("{}: expected {} bytes, found {}", path.string(), found->second.bytes, bytes.size()));
  }
  if (const std::uint32_t crc = crc32c(bytes); crc != found->second.crc32c) {
    throw FileError(fmt::format("{}: expected CRC32C {:08x}, found {:08x}: the file is damaged", path.string(),
                                found->second.crc32c, crc));
  }
}

/// The checksum comes first: a damaged file is called damaged, whatever its header has become.
std::unique_ptr<SafetensorsFile> read_verified(const fs::path& path, const CheckpointManifest& manifest) {
  verify(path, manifest, MappedFile(path).bytes());
  return std::make_unique<SafetensorsFile>(path);
}

}  // namespace

const std::string& Checkpoint::blob(const std::string& name) const {
  const auto found = blobs_.find(name);
  if (found == blobs_.end()) {
    throw FileError(fmt::format("{}: expected a file {}, found none", path_.string(), name));
  }
  return found->second;
}

fs::path write_checkpoint(const fs::path& folder, const CheckpointState& state) {
  std::error_code error;
  const bool created = fs::create_directories(folder, error);
  if (error) {
    fail(folder, "create", error.message());
  }
  if (created) {
    sync_folder(folder.parent_path());
  }
  check(state.manifest.step >= 0, "a checkpoint's step is not negative");
  const fs::path target = folder / fmt::format("{}{:08}", kPrefix, state.manifest.step);
  PartialFolder partial(target);
  CheckpointManifest manifest = state.manifest;
  manifest.files.clear();
  manifest.files[kValues] = write_safetensors(partial.path() / kValues, state.values);
  manifest.files[kState] = write_safetensors(partial.path() / kState, state.state);
  for (const auto& [name, bytes] : state.blobs) {
    check(!name.empty() && name.front() != '.' && name.find('/') == std::string::npos && name != kManifest &&
              !manifest.files.contains(name),
          "a blob has a plain file name of its own");
    write_file_atomically(partial.path() / name, bytes);
    manifest.files[name] = summary_of(std::as_bytes(std::span(bytes)));
  }
  write_file_atomically(partial.path() / kManifest, manifest_text(manifest));
  partial.put_in_place();
  return target;
}

Checkpoint read_checkpoint(const fs::path& path) {
  Checkpoint checkpoint;
  checkpoint.path_ = path;
  const fs::path manifest = path / kManifest;
  checkpoint.manifest_ = parse_manifest(read_file(manifest), manifest.string());
  checkpoint.values_ = read_verified(path / kValues, checkpoint.manifest_);
  checkpoint.state_ = read_verified(path / kState, checkpoint.manifest_);
  for (const auto& [name, summary] : checkpoint.manifest_.files) {
    if (name != kValues && name != kState) {
      std::string bytes = read_file(path / name);
      verify(path / name, checkpoint.manifest_, std::as_bytes(std::span(bytes)));
      checkpoint.blobs_[name] = std::move(bytes);
    }
  }
  return checkpoint;
}

LatestCheckpoint latest_checkpoint(const fs::path& folder) {
  LatestCheckpoint latest;
  for (const fs::path& path : checkpoints_in(folder)) {
    try {
      latest.checkpoint = read_checkpoint(path);
      break;
    } catch (const FileError& error) {
      latest.skipped.push_back({path, error.what()});
    }
  }
  return latest;
}

bool holds_checkpoints(const fs::path& folder) {
  try {
    return !checkpoints_in(folder).empty();
  } catch (const FileError&) {
    return false;  // it cannot be read
  }
}

void remove_partial_checkpoints(const fs::path& folder) {
  for (const fs::path& path : entries(folder)) {
    const std::string name = path.filename().string();
    for (const std::string_view suffix : {kPartial, kReplaced}) {
      if (name.size() <= suffix.size() + 1 || name.front() != '.' || !name.ends_with(suffix)) {
        continue;
      }
      const std::string original = name.substr(1, name.size() - suffix.size() - 1);
      if (!step_of(original)) {
        continue;
      }
      if (suffix == kReplaced && !fs::exists(folder / original)) {
        if (::rename(path.c_str(), (folder / original).c_str()) != 0) {
          fail(folder / original, "restore", std::strerror(errno));
        }
      } else {
        remove_folder(path);
      }
    }
  }
}

void prune_checkpoints(const fs::path& folder, std::size_t keep_last, std::size_t keep_best) {
  std::vector<fs::path> readable;
  std::vector<std::pair<double, std::size_t>> scored;  // score, place in readable
  for (const fs::path& path : checkpoints_in(folder)) {
    try {
      const CheckpointManifest manifest = parse_manifest(read_file(path / kManifest), (path / kManifest).string());
      if (manifest.score) {
        scored.emplace_back(*manifest.score, readable.size());
      }
      readable.push_back(path);
    } catch (const FileError&) {
      continue;  // latest_checkpoint() is where the user hears of it
    }
  }
  std::stable_sort(scored.begin(), scored.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::set<std::size_t> kept;
  for (std::size_t i = 0; i < std::min(keep_best, scored.size()); ++i) {
    kept.insert(scored[i].second);
  }
  for (std::size_t i = keep_last; i < readable.size(); ++i) {
    if (kept.contains(i)) {
      continue;
    }
    // Out of sight first, so that a kill in the middle leaves a partial folder and not a broken checkpoint.
    const fs::path doomed = hidden(readable[i], kPartial);
    remove_folder(doomed);
    if (::rename(readable[i].c_str(), doomed.c_str()) != 0) {
      fail(readable[i], "remove", std::strerror(errno));
    }
    remove_folder(doomed);
  }
}

}  // namespace distbelief
