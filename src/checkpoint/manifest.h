#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "checkpoint/safetensors.h"

namespace distbelief {

/// Where a run stands, beside its values: all that a checkpoint's manifest.json holds.
struct CheckpointManifest {
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  std::int64_t position = 0;  ///< samples of this epoch already drawn
  std::uint64_t seed = 0;
  std::string model_digest;
  /// How good the model is (validation accuracy, say); greater is better. Only what has one can be kept as best.
  std::optional<double> score;
  std::map<std::string, std::uint64_t> updates;           ///< how often each shard was updated
  std::map<std::uint64_t, std::uint64_t> next_seq;        ///< of each open lease
  std::map<std::string, std::uint64_t> samples;           ///< the sample audit's counters
  std::string extra = "{}";                               ///< a JSON value of the caller's own
  std::map<std::string, FileSummary, std::less<>> files;  ///< filled in when the checkpoint is written
};

/// The manifest as JSON text that people can read too.
std::string manifest_text(const CheckpointManifest& manifest);

/// Throws FileError naming `file`, the key and what was expected.
CheckpointManifest parse_manifest(std::string_view text, const std::string& file);

}  // namespace distbelief
