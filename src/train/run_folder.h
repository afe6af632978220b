#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/folder_lock.h"
#include "config/run_config.h"

namespace distbelief {

/// Whether both are the same folder, there or not.
bool is_same_folder(const std::filesystem::path& one, const std::filesystem::path& other);

/// The first runs/WHAT-DATA-N that is free.
std::filesystem::path free_folder(const std::string& what, const std::string& data_name);

/// The folder that a run writes; see docs/run-folder.md.
class RunFolder {
 public:
  /// A new folder: `config.out`, or the first free runs/MODEL-DATA-N. Throws InputError when there is a run in it
  /// already, or a file that a run would write, when another process works in it, or when it cannot be made. Nothing is
  /// overwritten.
  static RunFolder create(const RunConfig& config, const std::string& data_name);
  /// A folder that holds a run. Throws InputError when it does not.
  static RunFolder open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path config() const { return path_ / "run.yaml"; }
  std::filesystem::path metrics() const { return path_ / "metrics.jsonl"; }
  std::filesystem::path checkpoints() const { return path_ / "checkpoints"; }
  std::filesystem::path model() const { return path_ / "model.safetensors"; }
  std::filesystem::path summary() const { return path_ / "summary.json"; }
  std::filesystem::path report() const { return path_ / "report.html"; }
  /// In which view of the job a worker took the folder over from one that was lost; none when nobody did.
  std::filesystem::path leader() const { return path_ / "leader"; }

  /// The lock that create() took, for whoever keeps it while the run lasts; without it the folder is free for others.
  std::optional<FolderLock> take_lock() { return std::exchange(lock_, std::nullopt); }
  /// Takes back what create() made: removes `files`, and then the folders that were not there before and are empty.
  void discard(const std::vector<std::filesystem::path>& files) const;

 private:
  explicit RunFolder(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
  std::vector<std::filesystem::path> made_;  ///< folders, the innermost first
  std::optional<FolderLock> lock_;
};

}  // namespace distbelief
