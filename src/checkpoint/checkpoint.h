#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"

namespace distbelief {

/// A checkpoint is a folder "step-00001234" with values.safetensors (the parameters by name), state.safetensors (the
/// optimizer's slots as "slot/parameter", and what else must survive), a file for each blob, and manifest.json, which
/// holds the size and CRC32C of each. It is written as ".step-00001234.partial" and renamed when all of it is on the
/// disk: a process killed at any moment leaves the checkpoints it had, with or without the new one, and none broken.
/// One process writes into a folder of checkpoints; any may read.

/// What a checkpoint is written from. The arrays are borrowed during the call.
struct CheckpointState {
  CheckpointManifest manifest;
  std::vector<FloatArray> values;
  std::vector<FloatArray> state;
  std::map<std::string, std::string> blobs;  ///< bytes by file name, for what is no array of floats
};

/// A checkpoint that was read; its files are mapped, sound by their checksums, and stay so when the folder is pruned.
class Checkpoint {
 public:
  const std::filesystem::path& path() const { return path_; }
  const CheckpointManifest& manifest() const { return manifest_; }
  const SafetensorsView& values() const { return values_->view(); }
  const SafetensorsView& state() const { return state_->view(); }
  /// Throws FileError when the checkpoint has no blob of this name.
  const std::string& blob(const std::string& name) const;
  bool has_blob(const std::string& name) const { return blobs_.contains(name); }

 private:
  friend Checkpoint read_checkpoint(const std::filesystem::path& path);

  std::filesystem::path path_;
  CheckpointManifest manifest_;
  std::unique_ptr<SafetensorsFile> values_;
  std::unique_ptr<SafetensorsFile> state_;
  std::map<std::string, std::string> blobs_;
};

/// Writes a checkpoint into `folder`, which is created when missing, and returns its path. One of the same step is
/// replaced. Throws FileError when it cannot be written; nothing of it is then left.
std::filesystem::path write_checkpoint(const std::filesystem::path& folder, const CheckpointState& state);

/// Reads the checkpoint folder `path`. Throws FileError that names the file when anything is missing or damaged.
Checkpoint read_checkpoint(const std::filesystem::path& path);

struct LatestCheckpoint {
  struct Skipped {
    std::filesystem::path path;
    std::string reason;
  };
  std::optional<Checkpoint> checkpoint;  ///< none when no sound one was found
  std::vector<Skipped> skipped;          ///< newer ones that could not be used; the caller says so
};

/// The newest sound checkpoint in `folder`. A missing folder holds none.
LatestCheckpoint latest_checkpoint(const std::filesystem::path& folder);

/// Whether there is any checkpoint in `folder`, sound or not.
bool holds_checkpoints(const std::filesystem::path& folder);

/// Removes what an earlier process was killed over. To be called before the first write. Throws FileError.
void remove_partial_checkpoints(const std::filesystem::path& folder);

/// Removes all but the `keep_last` newest and the `keep_best` of highest score (the newer one among equals). Folders
/// whose manifest cannot be read are neither counted nor touched. Throws FileError.
void prune_checkpoints(const std::filesystem::path& folder, std::size_t keep_last, std::size_t keep_best);

}  // namespace distbelief
