#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "exec/layer_timer.h"
#include "plan/layer_profile.h"
#include "train/link_probe.h"

namespace distbelief {

/// $XDG_CACHE_HOME/distbelief or ~/.cache/distbelief; empty when neither is known. `environment`: "KEY=VALUE".
std::filesystem::path cache_folder(const std::vector<std::string>& environment);

/// Processes of so many threads that this machine's cores can run at the same time, of `processes` that it shall run.
TimedLoad load_of_machine(int processes, int threads);

/// What processes of other machines are taken to be linked by, when nobody says.
constexpr LinkSpeed kUsualLink = {.latency = 50e-6, .bandwidth = 10e9 / 8};

/// Layers measured on this machine, now or before: what is new is kept in a file of the cache folder for the next time.
/// A file that cannot be read or written is a note and nothing more.
class MeasuredLayers {
 public:
  /// `folder`: of the cache; empty: nothing is kept. `before_measuring`, unless empty, hears before each layer that is
  /// measured now how many were before it.
  MeasuredLayers(const std::filesystem::path& folder, const TimedLoad& load,
                 std::function<void(int before)> before_measuring);

  LayerTimes& times() { return profile_; }
  int measured() const { return profile_.measured(); }  ///< now, and not before
  /// Keeps what is new, and says in one line where the times come from.
  std::string finish(std::vector<std::string>& notes);

 private:
  std::optional<LayerTime> measured(const std::function<std::optional<LayerTime>()>& measure);

  std::filesystem::path file_;
  const TimedLoad load_;
  const std::function<void(int before)> before_measuring_;  ///< may be empty
  std::vector<std::string> problems_;
  LayerProfile profile_;
};

/// The link between processes of this machine, measured now or remembered in the same folder, so that a plan is the
/// same the next time. Nothing when it cannot be measured. What goes wrong with the file is told in `notes`.
std::optional<LinkSpeed> measured_link(const std::filesystem::path& folder, std::vector<std::string>& notes);

/// Likewise what processes of this machine can read and write a second, each of them.
std::optional<double> measured_memory(const std::filesystem::path& folder, const TimedLoad& load,
                                      std::vector<std::string>& notes);

}  // namespace distbelief
