#include "train/run_folder.h"

#include <system_error>

#include "base/error.h"

namespace distbelief {
namespace {

bool holds_a_run(const std::filesystem::path& path) { return std::filesystem::exists(path / "run.yaml"); }

/// Nothing in it that a new run would overwrite.
void expect_free(const std::filesystem::path& path, std::string_view option = "out") {
  if (holds_a_run(path)) {
    throw InputError(
        fmt::format("--{1} {0}: there is a run in this folder; choose another, or go on with it: "
                    "distbelief train --resume {0}",
                    path.string(), option));
  }
  for (const char* name : {"model.safetensors", "summary.json", "report.html", "metrics.jsonl", "checkpoints"}) {
    if (std::filesystem::exists(path / name)) {
      throw InputError(fmt::format("--{} {}: a run would overwrite {}, which is there already; choose another folder",
                                   option, path.string(), (path / name).string()));
    }
  }
}

/// Folders on the way to `path` that are not there yet, the innermost first.
std::vector<std::filesystem::path> missing_folders(std::filesystem::path path) {
  std::vector<std::filesystem::path> missing;
  path = std::filesystem::absolute(path).lexically_normal();
  path = path.has_filename() ? path : path.parent_path();
  for (; path.has_relative_path() && !std::filesystem::exists(path); path = path.parent_path()) {
    missing.push_back(path);
  }
  return missing;
}

std::string plain_name(const std::string& source) {
  std::string name = std::filesystem::path(source).stem().string();
  for (char& c : name) {
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
    c = plain ? c : '-';
  }
  return name.substr(0, 40);
}

}  // namespace

bool is_same_folder(const std::filesystem::path& one, const std::filesystem::path& other) {
  return std::filesystem::weakly_canonical(one) == std::filesystem::weakly_canonical(other);
}

std::filesystem::path free_folder(const std::string& what, const std::string& data_name) {
  const std::string name = plain_name(what) + "-" + plain_name(data_name) + "-";
  std::filesystem::path path;
  for (int number = 1; path.empty() || std::filesystem::exists(path); ++number) {
    path = std::filesystem::path("runs") / (name + std::to_string(number));
  }
  return path;
}

RunFolder RunFolder::create(const RunConfig& config, const std::string& data_name) {
  std::filesystem::path path = config.out;
  if (path.empty()) {
    path = free_folder(config.model, data_name);
  }
  RunFolder folder(path);
  std::error_code error;
  try {
    expect_free(path);
    if (!config.checkpoint_copy.empty()) {
      if (is_same_folder(path, config.checkpoint_copy)) {
        throw InputError(fmt::format("--checkpoint-copy {}: expected a second place, this is the run's own folder",
                                     config.checkpoint_copy));
      }
      expect_free(config.checkpoint_copy, "checkpoint-copy");
    }
    folder.made_ = missing_folders(path);
    std::filesystem::create_directories(path, error);
  } catch (const std::filesystem::filesystem_error& failure) {
    error = failure.code();
  }
  if (error) {
    throw InputError(fmt::format("--out {}: cannot make the folder: {}", path.string(), error.message()));
  }
  folder.lock_.emplace(path);
  expect_free(path);  // another process may have been quicker
  return folder;
}

void RunFolder::discard(const std::vector<std::filesystem::path>& files) const {
  std::error_code ignored;  // there is a mistake to tell of already
  for (const std::filesystem::path& file : files) {
    std::filesystem::remove(file, ignored);
  }
  for (const std::filesystem::path& folder : made_) {
    std::filesystem::remove(folder, ignored);  // not one that has something in it
  }
}

RunFolder RunFolder::open(const std::filesystem::path& path) {
  if (!holds_a_run(path)) {
    throw InputError(fmt::format("--resume {}: no run.yaml there; expected the folder of a run", path.string()));
  }
  return RunFolder(path);
}

}  // namespace distbelief
