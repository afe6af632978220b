#include "train/job_rank.h"

#include <exception>
#include <thread>

#include "base/error.h"
#include "cluster/child_process.h"
#include "cluster/job_file.h"
#include "transport/mpi/mpi_fabric.h"

namespace distbelief {
namespace {

constexpr std::chrono::seconds kPatience{60};
constexpr std::uint32_t kMeetingEpoch = 0x1ff;  ///< of the group that only hears where the job is

/// The coordinator of the first rank. Ends by itself when all workers are done or dead; killed when we give up before.
struct CoordinatorProcess {
  CoordinatorProcess(const RankOptions& options, const std::filesystem::path& folder)
      : process({.name = "coordinator",
                 .argv = {options.program, "coordinator", folder},
                 .environment = options.environment,
                 .log = folder / "logs" / "coordinator.log"}) {
    const Clock::time_point deadline = Clock::now() + kPatience;
    while (!std::filesystem::exists(job_file_path(folder))) {
      if (process.reap() || Clock::now() > deadline) {
        throw Error("the coordinator did not start: " + last_lines(folder / "logs" / "coordinator.log", 3));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  ChildProcess process;
};

/// What the first rank tells the others; empty when it failed.
struct Told {
  std::string folder, address, token, config;
};

Outcome tell_all(Fabric& fabric, Told& told) {
  Group group(fabric, all_ranks(fabric), kMeetingEpoch);
  const Team team = {.group = &group, .patience = kPatience};
  for (std::string* text : {&told.folder, &told.address, &told.token, &told.config}) {
    if (Outcome outcome = team.share(*text); !outcome.ok()) {
      return outcome;
    }
  }
  return {};
}

}  // namespace

WorkerResult train_as_rank(const RankOptions& options, RunConfig config, RunObserver& observer,
                           const std::function<bool()>& stop_requested) {
  const bool first = options.launcher.rank == 0;
  config.workers = options.launcher.size;
  std::optional<CoordinatorProcess> coordinator;
  std::exception_ptr failure;
  Told told;
  if (first) {
    try {
      std::filesystem::path folder = options.resume;
      if (options.resume.empty()) {
        folder = prepare_run(config);
      } else {
        change_run(folder, config);
      }
      remove_stale_job_file(folder);
      std::filesystem::create_directories(folder / "logs");
      coordinator.emplace(options, folder);
      const JobFile job = read_job_file(folder);
      told = {std::filesystem::absolute(folder).string(), job.address.text(), job.token,
              config_text(config_of_run(folder))};
      if (!options.launcher.survivors_live) {
        observer.note("note    when a worker dies this launcher ends the others too, without a last checkpoint; " +
                      options.launcher.remedy + " changes that");
      } else if (options.launcher.kind == MpiLauncher::Kind::open_mpi) {
        observer.note(
            "note    with --enable-recovery mpirun itself ends with code 0 whatever happens; "
            "summary.json says how the run ended");
      }
      if (config.restarts > 0) {
        observer.note("note    --restarts is for jobs that this program starts itself");
      }
    } catch (...) {
      failure = std::current_exception();  // the others wait in MPI_Init: they have to be told
    }
  }
  MpiWorld world(Clock::now() + kPatience);
  auto fabric = std::make_unique<MpiFabric>(world);
  const Outcome outcome = tell_all(*fabric, told);
  if (failure || !outcome.ok() || told.folder.empty()) {
    fabric.reset();
    const bool finished = world.finish(Clock::now() + kPatience);
    if (failure) {
      std::rethrow_exception(failure);
    }
    return {.exit_code = 2, .leave_at_once = !finished};
  }
  JobAccess job = {.address = Address::parse(told.address), .token = told.token, .config = {}};
  apply_config_text(job.config, told.config, "the first rank's run.yaml");
  WorkerOptions worker;
  worker.folder = told.folder;
  worker.resumes = !options.resume.empty();
  worker.version = options.version;
  WorkerResult result = work_in_job(job, worker, {&world, std::move(fabric)}, &observer, stop_requested);
  if (coordinator) {
    (void)coordinator->process.wait(Clock::now() + kPatience);
  }
  return result;
}

}  // namespace distbelief
