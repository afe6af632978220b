// The processes of a job: started by 'train', not by people, so they are not in the help.

#include <unistd.h>

#include <csignal>
#include <memory>

#include "base/error.h"
#include "cluster/child_process.h"
#include "commands.h"
#include "signals.h"
#include "train/job_coordinator.h"
#include "train/job_launch.h"
#include "train/job_worker.h"
#include "train/process_log.h"
#include "transport/mpi/mpi_leftovers.h"
#include "versions.h"

namespace distbelief {

void add_coordinator_command(CLI::App& app, const JobPlace& place, int& exit_code) {
  CLI::App* command = app.add_subcommand("coordinator", "The process that knows who is in a job")->group("");
  const auto folder = std::make_shared<std::string>();       // shared with the callback, which outlives this function
  const auto several_hosts = std::make_shared<bool>(false);  // likewise
  command->add_option("RUN", *folder, "the run's folder")->required();
  command->add_flag("--several-hosts", *several_hosts, "a foreign launcher started processes on other machines");
  const auto again = std::make_shared<bool>(false);  // likewise
  command->add_flag("--again", *again, "the job's coordinator was killed: take its place");
  const auto restarts = std::make_shared<int>(0);  // likewise
  command->add_option("--restarts", *restarts, "how often the job was started again before");
  command->callback([folder, several_hosts, again, restarts, place, &exit_code] {
    catch_stop_signals();
    const pid_t parent = ::getppid();
    const ProcessLog log(std::filesystem::path(*folder) / "logs" / "coordinator.log");
    const JobResult result = coordinate_job({.folder = *folder,
                                             .version = DISTBELIEF_VERSION,
                                             .has_launcher = place.launcher_pid > 0,
                                             .several_hosts = *several_hosts,
                                             .again = *again,
                                             .restarts = *restarts,
                                             .log = [&log](const std::string& line) { log.line(line); },
                                             .stop_requested = [] { return stop_signal() != 0; }});
    if (result.deposed) {
      log.line("ends: " + result.reason);
    }
    if (::getppid() != parent) {  // it was killed with the mpirun that had started it
      (void)remove_mpi_leftovers(temporary_folder(place.environment));
    }
    exit_code = result.succeeded || result.deposed ? 0 : 1;
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
  command->add_flag("--as-server", options->as_server, "with --late: hold parameters");
  command->add_flag("--standby", options->standby, "with --late: wait until a worker dies");
  command->add_flag("--resumes", options->resumes, "go on from the newest checkpoint");
  command->callback([options, place, &exit_code] {
    catch_stop_signals();
    if (place.launcher_pid > 0 && options->transport != "mpi") {
      die_with_parent(place.launcher_pid, SIGINT);  // a last checkpoint; under mpirun the coordinator orders it
    }
    options->launch = options->transport == "mpi" ? 0 : place.launch;
    options->version = DISTBELIEF_VERSION;
    options->leave_requested = [] { return stop_signal_came(SIGTERM); };
    const WorkerResult result = run_worker(*options, [] { return stop_signal_came(SIGINT); });
    exit_code = result.exit_code;
    if (result.leave_at_once) {
      std::fflush(nullptr);
      ::_exit(exit_code);
    }
  });
}

}  // namespace distbelief
