// The processes of a job: started by 'train', not by people, so they are not in the help.

#include <unistd.h>

#include <cmath>
#include <csignal>
#include <memory>
#include <stop_token>

#include "base/error.h"
#include "cluster/child_process.h"
#include "cluster/coordinator.h"
#include "commands.h"
#include "signals.h"
#include "train/job_hosts.h"
#include "train/job_launch.h"
#include "train/job_tls.h"
#include "train/job_worker.h"
#include "train/process_log.h"
#include "transport/mpi/mpi_leftovers.h"

namespace distbelief {

void add_coordinator_command(CLI::App& app, const JobPlace& place, int& exit_code) {
  CLI::App* command = app.add_subcommand("coordinator", "The process that knows who is in a job")->group("");
  const auto folder = std::make_shared<std::string>();       // shared with the callback, which outlives this function
  const auto several_hosts = std::make_shared<bool>(false);  // likewise
  command->add_option("RUN", *folder, "the run's folder")->required();
  command->add_flag("--several-hosts", *several_hosts, "a foreign launcher started processes on other machines");
  const auto again = std::make_shared<bool>(false);  // likewise
  command->add_flag("--again", *again, "the job's coordinator was killed: take its place");
  command->callback([folder, several_hosts, again, place, &exit_code] {
    catch_stop_signals();
    const pid_t parent = ::getppid();
    const RunConfig config = config_of_run(*folder);
    CoordinatorOptions options;
    options.run_folder = *folder;
    options.comes_back = *again;
    const CoordinatorPlace where = coordinator_place(config, *several_hosts);
    options.listen = where.listen;
    options.advertised_hosts = where.hosts;
    options.tls = tls_of(config);
    options.rules.version = DISTBELIEF_VERSION;
    options.rules.configuration = configuration_digest(config);
    options.rules.workers = static_cast<int>(config.workers);
    options.rules.servers = static_cast<int>(processes_of(config) - config.workers);
    options.rules.parts = static_cast<int>(parts_of(config));
    options.rules.has_launcher = place.launcher_pid > 0;
    options.rules.workers_may_leave = workers_may_leave(config);
    options.rules.takes_late_members = takes_newcomers(config);
    const ChaosScript chaos = parse_chaos(config.chaos);
    options.rules.rendezvous = chaos.rendezvous();
    for (const ChaosEvent& event : chaos.events) {
      if (event.subject.kind == ChaosSubject::Kind::coordinator) {
        options.rules.deaths.push_back(event.text);
      }
    }
    options.rules.stall_limit = std::chrono::milliseconds(std::llround(config.stall_after * 1000));
    const ProcessLog log(std::filesystem::path(*folder) / "logs" / "coordinator.log");
    options.log = [&log](const std::string& line) { log.line(line); };
    Coordinator coordinator(std::move(options));
    std::optional<JobResult> result;
    bool stopping = false;
    while (!result) {
      result = coordinator.wait(Clock::now() + std::chrono::milliseconds(100));
      if (stop_signal() != 0 && !stopping) {
        stopping = true;
        coordinator.stop("the coordinator was asked to stop");
      }
    }
    if (::getppid() != parent) {  // it was killed with the mpirun that had started it
      (void)remove_mpi_leftovers(temporary_folder(place.environment));
    }
    exit_code = result->succeeded ? 0 : 1;
  });
}

void add_worker_command(CLI::App& app, const JobPlace& place, int& exit_code) {
  CLI::App* command = app.add_subcommand("worker", "One of the processes that train")->group("");
  const auto options = std::make_shared<WorkerOptions>();  // shared with the callback, which outlives this function
  command->add_option("RUN", options->folder, "the run's folder")->required();
  command->add_option("--transport", options->transport, "mpi or socket")->required();
  command->add_option("--rank", options->rank, "the place to take; without it any");
  command->add_option("--restarts", options->restarts, "how often the job was started again before");
  command->add_flag("--late", options->late, "the others have begun: take the next free place and get all from them");
  command->add_flag("--resumes", options->resumes, "go on from the newest checkpoint");
  command->callback([options, place, &exit_code] {
    catch_stop_signals();
    if (place.launcher_pid > 0 && options->transport != "mpi") {
      die_with_parent(place.launcher_pid, SIGTERM);  // a last checkpoint; under mpirun the coordinator orders it
    }
    options->launch = options->transport == "mpi" ? 0 : place.launch;
    options->version = DISTBELIEF_VERSION;
    const WorkerResult result = run_worker(*options, [] { return stop_signal() != 0; });
    exit_code = result.exit_code;
    if (result.leave_at_once) {
      std::fflush(nullptr);
      ::_exit(exit_code);
    }
  });
}

}  // namespace distbelief
