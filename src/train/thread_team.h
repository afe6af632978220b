#pragma once

#include <filesystem>
#include <functional>

#include "train/trainer.h"

namespace distbelief {

/// Trains with config.workers workers that are threads of this process, each with a replica of its own and links
/// between them: the same algorithms as between processes, for tests and for machines without MPI. `folder` and
/// `resumes` as in Trainer::in_team(). The observer is called on this thread. Rethrows what a worker threw first.
RunSummary train_on_threads(const std::filesystem::path& folder, bool resumes, const RunConfig& config,
                            RunObserver& observer, const std::function<bool()>& stop_requested);

}  // namespace distbelief
