#include <unistd.h>

#include <csignal>
#include <memory>

#include "base/error.h"
#include "commands.h"
#include "signals.h"
#include "train/job_worker.h"
#include "train/trainer.h"

namespace distbelief {

void add_join_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("join", "Add this machine to a running job as one more worker");
  command->group("Jobs");
  const auto folder = std::make_shared<std::string>();  // shared with the callback, which outlives this function
  command->add_option("run", *folder, "the run's folder, which this machine must see")->type_name("RUN")->required();
  command->footer(
      "The others go on training. They take the newcomer in between two steps (averaging and gossip: between two\n"
      "epochs), give it the parameters and all else from memory, and share the samples out anew; nothing restarts. It\n"
      "runs until the job ends; Ctrl-C stops the whole job. For jobs whose workers make steps or averages together:\n"
      "allreduce, sync, averaging, gossip, with whole networks.\n"
      "\n"
      "Examples:\n"
      "  distbelief join runs/team");
  command->callback([folder, &exit_code] {
    if (!std::filesystem::is_directory(*folder)) {
      throw InputError(fmt::format("{}: expected the folder of a run", *folder));
    }
    const RunConfig config = config_of_run(*folder);
    if (!takes_newcomers(config)) {
      throw InputError(fmt::format("{}: --algorithm {}{}: such a job takes no workers in while it runs", *folder,
                                   config.algorithm, parts_of(config) > 1 ? " with a network that is cut" : ""));
    }
    catch_stop_signals();
    const WorkerResult result = run_worker(
        {.folder = *folder, .transport = "socket", .late = true, .version = DISTBELIEF_VERSION},
        [] { return stop_signal() != 0; });
    fmt::print("{}\n", result.summary.status.empty() ? "the job ended before it began" : "the run is " + result.summary.status);
    exit_code = result.exit_code;
  });
}

}  // namespace distbelief
