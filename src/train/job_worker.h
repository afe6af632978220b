#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "train/job_invitation.h"
#include "train/trainer.h"
#include "transport/address.h"
#include "transport/mpi/mpi_fabric.h"

namespace distbelief {

/// What a worker process of a job is told when it is started.
struct WorkerOptions {
  std::filesystem::path folder;  ///< of the run; its job.json says where the coordinator is
  bool resumes = false;
  std::string transport;     ///< mpi or socket; for run_worker()
  std::uint64_t launch = 0;  ///< the launcher's number for this process
  int rank = -1;             ///< the place it is to take; -1: any, or as MPI has it, or the next
  bool late = false;         ///< it joins when the others have begun, under the next free rank, and gets all from them
  bool as_server = false;    ///< with `late`: it holds parameters, and does not train
  bool standby = false;      ///< with `late`: it waits, with data opened, until it is to take a dead worker's place
  /// Of one that waits until there are enough for a copy of the network: told, once, how many more it takes. Or null.
  std::function<void(const std::string& text)> waits = {};
  int restarts = 0;  ///< how often the job was started again before
  std::string version;
  std::string host;            ///< what the job calls this machine; empty: as it calls itself
  bool log_is_output = false;  ///< what it writes down goes to its standard output, not into the folder
  /// This process was asked to end: it leaves, and the others go on where they can. Null: it never is.
  std::function<bool()> leave_requested = {};
  std::shared_ptr<OpenedRun> opened = {};  ///< what a standby has opened, for its work; shared as options are copied
};

/// How a worker process must end: with this code, and, when MPI would hang in its exit handlers, by _exit().
struct WorkerResult {
  int exit_code = 0;
  bool leave_at_once = false;
  bool tells = false;  ///< the summary is this worker's to tell: it leads, or the leader is lost
  bool left = false;   ///< the others go on without it
  /// Its copy of the network is given up, and what is left of it may be part of another: it joins again.
  bool comes_again = false;
  std::string end = {};  ///< why, for people
  RunSummary summary = {};
};

/// What it takes to join a job.
struct JobAccess {
  Address address;  ///< of the coordinator
  std::string token;
  RunConfig config;
};

/// What an invitation says, with the address at which the coordinator answers. `source` is what errors call its
/// configuration. Throws Error when the coordinator cannot be reached.
JobAccess access_of(const JobInvitation& invitation, const std::string& source);

/// A worker's whole life in a job on this machine, or under our mpirun, where only rank 0 reads the folder: it joins,
/// meets the others, trains, and leaves. Throws Error when it cannot join; what happens to others is in the run's
/// summary, which the leader tells the launcher.
WorkerResult run_worker(const WorkerOptions& options, const std::function<bool()>& stop_requested);

/// The same for a worker that was told everything, and does not look into the folder unless it leads or must take over.
/// Throws Error when it cannot join. `leave_requested`: see WorkerOptions.
WorkerResult run_invited_worker(const JobInvitation& invitation, const std::string& version,
                                const std::function<bool()>& stop_requested,
                                const std::function<bool()>& leave_requested);

/// The MPI job of all workers; nothing when they talk over sockets.
struct MpiLinks {
  MpiWorld* world = nullptr;
  std::unique_ptr<MpiFabric> fabric = nullptr;
};

/// What it takes to join the job that runs in this folder, with the configuration that it began with: run.yaml may have
/// another since, when a network was cut anew. Throws Error when the coordinator cannot be reached.
JobAccess access_to_running(const std::filesystem::path& folder, const std::string& version);

/// A worker's life with what was learned otherwise. What the leader sees is told to `show`, or, when that is null, to
/// the launcher.
WorkerResult work_in_job(const JobAccess& job, const WorkerOptions& options, MpiLinks links, RunObserver* show,
                         const std::function<bool()>& stop_requested);

/// The same for one that comes when the others have begun; if it is a standby, or the network is cut, it waits first,
/// and may never work.
WorkerResult join_late(const JobAccess& job, const WorkerOptions& options, const std::function<bool()>& stop_requested);

/// What work_in_job() does until the process has left, or WorkerResult::comes_again.
WorkerResult work_once(const JobAccess& job, const WorkerOptions& options, MpiLinks links, RunObserver* show,
                       const std::function<bool()>& stop_requested);

/// The process that had this result waits to be part of another copy of the network, as often as it takes.
WorkerResult work_again(const JobAccess& job, const WorkerOptions& options, WorkerResult before, RunObserver* show,
                        const std::function<bool()>& stop_requested);

/// Equal for processes that may train together.
std::string configuration_digest(const RunConfig& config);

}  // namespace distbelief
