#pragma once

#include <filesystem>
#include <memory>

#include "commands.h"
#include "plan/layer_profile.h"
#include "train/link_probe.h"

namespace distbelief {

/// $XDG_CACHE_HOME/distbelief or ~/.cache/distbelief; empty when neither is known. `environment`: "KEY=VALUE".
std::filesystem::path cache_folder(const std::vector<std::string>& environment);

/// Layers measured on this machine, now or before: what is new is kept in a file of the cache folder for the next time.
/// A file that cannot be read or written is a note and nothing more.
class MeasuredLayers {
 public:
  /// `shows`: counts on the terminal while it measures.
  MeasuredLayers(std::filesystem::path folder, int threads, bool shows);

  LayerTimes& times() { return profile_; }
  /// Keeps what is new, and says in one line where the times come from.
  std::string finish(std::vector<std::string>& notes);

 private:
  std::filesystem::path file_;
  const int threads_;
  const bool shows_;
  std::vector<std::string> problems_;
  LayerProfile profile_;
};

/// The link between processes of this machine, measured now or remembered in the same folder, so that a plan is the
/// same the next time. Nothing when it cannot be measured. What goes wrong with the file is told in `notes`.
std::optional<LinkSpeed> measured_link(const std::filesystem::path& folder, std::vector<std::string>& notes);

}  // namespace distbelief
