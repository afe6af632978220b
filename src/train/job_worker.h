#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "train/trainer.h"

namespace distbelief {

/// What a worker process of a job is told when it is started.
struct WorkerOptions {
  std::filesystem::path folder;  ///< of the run; its job.json says where the coordinator is
  bool resumes = false;
  std::string transport;     ///< mpi or socket
  std::uint64_t launch = 0;  ///< the launcher's number for this process
  std::string version;
};

/// How a worker process must end: with this code, and, when MPI would hang in its exit handlers, by _exit().
struct WorkerResult {
  int exit_code = 0;
  bool leave_at_once = false;
};

/// A worker's whole life in a job: it joins, meets the others, trains, and leaves. Throws Error when it cannot join;
/// what happens to others is in the run's summary, which the leader tells the launcher.
WorkerResult run_worker(const WorkerOptions& options, const std::function<bool()>& stop_requested);

/// Equal for processes that may train together.
std::string configuration_digest(const RunConfig& config);

}  // namespace distbelief
