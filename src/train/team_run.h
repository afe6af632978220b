#pragma once

#include <filesystem>
#include <functional>

#include "train/trainer.h"

namespace distbelief {

struct TeamResult {
  RunSummary summary;
  bool leads = false;  ///< what the run came to is this member's to tell
};

/// A member's part of a run, as Trainer::in_team() and run(), to the end. Where the network is cut and a part of it is
/// lost, those who are left go on together from the newest checkpoint, each with a new Trainer. Throws what those do.
TeamResult train_in_team(const Team& team, const std::filesystem::path& folder, bool resumes, const RunConfig& config,
                         RunObserver& observer, const std::function<bool()>& stop_requested,
                         std::shared_ptr<OpenedRun> opened = nullptr);

}  // namespace distbelief
