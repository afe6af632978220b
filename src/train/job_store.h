#pragma once

#include <filesystem>
#include <functional>
#include <optional>

#include "base/clock.h"
#include "cluster/job_file.h"
#include "cluster/store_url.h"
#include "config/run_config.h"

namespace distbelief {

/// The etcd of --store; nothing when that is the run's folder.
std::optional<StoreUrl> store_of(const RunConfig& config);

/// Before a job begins: throws InputError in one line when its store cannot be reached, or when a job of the same name
/// runs. Nothing without --store.
void check_store(const RunConfig& config);

/// For JoinRequest::find_coordinator; empty without --store. Throws InputError when a file of TLS cannot be used.
std::function<std::optional<JobFile>(Clock::time_point deadline)> coordinator_finder(const RunConfig& config);

/// How the job that runs in this folder is reached: as its store says, if it has one that can be reached, else as
/// job.json does. Throws FileError when no job runs there.
JobFile running_job(const std::filesystem::path& folder, const RunConfig& config);

}  // namespace distbelief
