#include <memory>
#include <thread>

#include "base/error.h"
#include "base/print.h"
#include "cluster/member.h"
#include "commands.h"
#include "observer.h"
#include "signals.h"

namespace distbelief {
namespace {

constexpr std::chrono::seconds kPatience{5};

struct StatusArguments {
  JobArguments job;
  bool watch = false;
};

}  // namespace

void add_status_command(CLI::App& app, const Terminal& terminal, const JobPlace& place) {
  CLI::App* command = app.add_subcommand("status", "Show who is in a running job and how far they are");
  command->group("Jobs");
  const auto arguments = std::make_shared<StatusArguments>();  // shared with the callback, which outlives this function
  add_job_arguments(*command, arguments->job, place);
  command->add_flag("--watch", arguments->watch, "show it again every second until the job ends");
  command->callback([arguments, &terminal] {
    const std::unique_ptr<Member> member = observe(arguments->job);
    catch_stop_signals();
    do {
      const std::optional<JobStatus> status = member->request_status(Clock::now() + kPatience);
      if (!status) {
        if (arguments->watch) {
          break;  // the job has ended
        }
        throw Error(fmt::format("{}: the coordinator does not answer", arguments->job.job));
      }
      if (arguments->watch && terminal.is_terminal) {
        print_out("\033[H\033[2J");
      }
      print_out("{}", status_text(*status));
      if (!flush_printed(stdout).empty()) {
        break;  // nobody sees it
      }
      for (int turn = 0; arguments->watch && turn < 10 && stop_signal() == 0; ++turn) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
      }
    } while (arguments->watch && stop_signal() == 0);
    member->leave(true, "has seen enough", Clock::now() + kPatience);
  });
}

}  // namespace distbelief
