#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "train/trainer.h"

namespace distbelief {

/// How the processes of a job are started on this machine.
struct LaunchOptions {
  std::filesystem::path program;         ///< this executable
  std::vector<std::string> environment;  ///< of this process, "KEY=VALUE"; theirs is made of it
  std::filesystem::path folder;          ///< that prepare_run() made, or that holds a run to go on with
  bool resumes = false;
  std::string transport;  ///< mpi or socket
  std::string mpirun;     ///< the launcher of the MPI this program was built with; for mpi
  std::string version;
  bool as_root = false;
  /// The user has asked once more: who has not ended is killed, without a last checkpoint.
  std::function<bool()> stop_at_once = {};
};

/// Trains in processes: starts a coordinator and config.workers workers, shows `observer` what the leader tells, and
/// returns when all have ended, which they do whatever happens: also when one dies, and when this process does. Their
/// words are in FOLDER/logs; the last ones of whoever died are shown. A worker that died is replaced where the others go
/// on and take newcomers, as often as the job may still be started again; when it cannot go on, all of it is started again
/// from the newest checkpoint, config.restarts times at most. Throws Error when there is no summary.
RunSummary train_in_processes(const LaunchOptions& options, const RunConfig& config, RunObserver& observer,
                              const std::function<bool()>& stop_requested);

/// Where programs with this environment put what is for a while.
std::filesystem::path temporary_folder(const std::vector<std::string>& environment);

}  // namespace distbelief
