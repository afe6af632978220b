#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "base/print.h"
#include "commands.h"
#include "observer.h"
#include "signals.h"
#include "train/job_invitation.h"
#include "train/job_worker.h"
#include "train/trainer.h"
#include "versions.h"

namespace distbelief {
namespace {

constexpr std::chrono::seconds kConfigurationPatience{10};

/// A job that this machine is to help with.
struct JobToJoin {
  JobAccess access;
  WorkerOptions options;
};

JobToJoin job_in(const std::filesystem::path& folder) {
  JobToJoin found;
  found.access = access_to_running(folder, DISTBELIEF_VERSION);
  found.options.folder = folder;
  return found;
}

/// What this machine must know comes from the coordinator.
JobToJoin job_at(JobArguments& arguments) {
  const std::unique_ptr<Member> observer = observe(arguments);
  const std::optional<std::string> text = observer->request_configuration(Clock::now() + kConfigurationPatience);
  if (!text) {
    throw Error(fmt::format("{}: the coordinator does not answer", arguments.job));
  }
  observer->leave(true, "joins as a worker", Clock::now() + kConfigurationPatience);
  const JobInvitation invitation = JobInvitation::parse(*text);
  JobToJoin found;
  found.access.address = job_address(arguments.job);
  found.access.token = arguments.token;
  apply_config_text(found.access.config, invitation.config, "the job's run.yaml");
  for (std::string RunConfig::*file : {&RunConfig::tls_cert, &RunConfig::tls_key, &RunConfig::tls_ca}) {
    if (!(arguments.config.*file).empty()) {
      found.access.config.*file = std::filesystem::absolute(arguments.config.*file);
    }
  }
  found.options.folder = invitation.folder;
  found.options.log_is_output = true;
  std::error_code not_here;
  std::filesystem::current_path(invitation.working_folder, not_here);  // then relative names of data are not found
  return found;
}

}  // namespace

void add_join_command(CLI::App& app, const JobPlace& place, int& exit_code) {
  CLI::App* command = app.add_subcommand("join", "Add this machine to a running job as one more worker or server");
  command->group("Jobs");
  const auto arguments = std::make_shared<JobArguments>();  // shared with the callback, which outlives this function
  add_job_arguments(*command, *arguments, place);
  command->footer(
      "The others go on training. Where workers make steps or averages together (allreduce, sync, averaging, gossip)\n"
      "they take the newcomer in between two steps (averaging and gossip: when parameters are next common), give it "
      "the\n"
      "parameters and all else from memory, and share the samples out anew; nothing restarts. In jobs with parameter\n"
      "servers (async, downpour, softsync, sandblaster, sync with backup workers) it fetches the parameters and trains "
      "on\n"
      "what it leases. It runs until the job ends; Ctrl-C or SIGTERM takes it out again, as 'distbelief leave' does. "
      "With\n"
      "HOST:PORT the configuration comes from the coordinator; data sets and model files must be at the same paths\n"
      "here. With --servers 0 it also takes its share of the parameters, as a server does.\n"
      "Where a network is cut over workers, it waits until there are enough for one more copy of the network\n"
      "or until a worker dies or leaves whose place it can take; with --standby only for the latter.\n"
      "\n"
      "With --as server it takes its share of the parameters from the other servers while training goes on, and\n"
      "answers for them.\n"
      "\n"
      "Examples:\n"
      "  distbelief join runs/team\n"
      "  distbelief join alpha:40123 --token-file token\n"
      "  distbelief join runs/team --as server\n"
      "  distbelief join runs/team --standby");
  const auto standby = std::make_shared<bool>(false);  // likewise
  command->add_flag("--standby", *standby, "wait, and take the place of a worker that dies");
  const auto role = std::make_shared<std::string>("worker");  // likewise
  command->add_option("--as", *role, "worker: it trains; server: it holds parameters, and others give it some")
      ->type_name("ROLE")
      ->check(CLI::IsMember({"worker", "server"}));
  command->callback([arguments, standby, role, &exit_code] {
    const bool as_server = *role == "server";
    if (as_server && *standby) {
      throw InputError("--standby: waits for the death of a worker; a server holds parameters at once");
    }
    const std::string& name = arguments->job;
    const bool is_folder = std::filesystem::is_directory(name);
    if (!is_folder && name.find(':') == std::string::npos) {
      throw InputError(fmt::format("{}: expected the folder of a run, or HOST:PORT", name));
    }
    const RunConfig known = is_folder ? config_of_run(name) : RunConfig();
    const auto expect_place = [&](const RunConfig& config) {
      if (as_server) {
        if (!servers_may_change(config)) {
          throw InputError(fmt::format("{}: {}", name, why_servers_stay(config)));
        }
        return;
      }
      if (*standby && takes_workers(config) && !replaces_workers(config)) {
        throw InputError(
            fmt::format("{}: --standby: with --replication 1 nobody can take a dead worker's place", name));
      }
      if (!takes_workers(config)) {
        throw InputError(fmt::format("{}: --algorithm {}{}: such a job takes no workers in while it runs", name,
                                     config.algorithm,
                                     is_served(config) && config.servers == 0
                                         ? fmt::format(" with {} workers that have a server inside", config.workers)
                                         : ""));
      }
    };
    if (is_folder) {
      expect_place(known);
    }
    JobToJoin job = is_folder ? job_in(name) : job_at(*arguments);
    expect_place(job.access.config);
    catch_stop_signals();
    job.options.late = true;
    job.options.version = DISTBELIEF_VERSION;
    job.options.leave_requested = [] { return stop_signal() != 0; };
    job.options.standby = *standby;
    job.options.waits = [](const std::string& text) {
      print_out("{}\n", text);
      std::fflush(stdout);
    };
    job.options.as_server = as_server;
    const WorkerResult result = join_late(job.access, job.options, [] { return false; });
    print_out("{}\n", result.left                           ? result.end
                      : result.summary.status.empty()       ? *standby || takes_copies(job.access.config)
                                                                  ? "the job ended without need of it"
                                                                  : "the job ended before it began"
                      : result.summary.status == "given up" ? "the job goes on without it"
                                                            : "the run is " + result.summary.status);
    exit_code = result.exit_code;
  });
}

}  // namespace distbelief
