#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "train/job_worker.h"
#include "train/trainer.h"
#include "transport/mpi/mpi_launcher.h"

namespace distbelief {

/// What a process knows that mpirun, mpiexec or srun started as one of many `distbelief train`.
struct RankOptions {
  MpiLauncher launcher;
  std::filesystem::path program;         ///< this executable
  std::vector<std::string> environment;  ///< of this process
  std::string resume;                    ///< a run's folder, or empty
  std::string version;
  std::int64_t workers = 0;                    ///< that the user asked for; 0: as many as were started
  std::function<bool()> leave_requested = {};  ///< see WorkerOptions
  /// Shows people a line that is no part of how the run goes; from any thread.
  std::function<void(const std::string& line)> say = [](const std::string& /*line*/) {};
};

/// Trains as one rank of a job that a foreign launcher started: workers are its ranks. The first makes the run's
/// folder, starts the coordinator beside it, before MPI begins, and shows the run; the others hear from it where all of
/// that is. `config.workers` becomes the number of ranks. Throws InputError on the first rank; the others then end with
/// code 2 and say nothing.
WorkerResult train_as_rank(const RankOptions& options, RunConfig config, RunObserver& observer,
                           const std::function<bool()>& stop_requested);

}  // namespace distbelief
