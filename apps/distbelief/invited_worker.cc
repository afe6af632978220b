// A worker on another host: started by 'train' over ssh or the user's --rsh, not by people, so it is not in the help.

#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <optional>
#include <thread>

#include "commands.h"
#include "signals.h"
#include "train/job_invitation.h"
#include "train/job_worker.h"
#include "versions.h"

namespace distbelief {
namespace {

constexpr std::chrono::seconds kInvitationPatience{30};
/// When its input ends, the launcher or the way to it is gone. The coordinator then mostly says so too, with a reason.
constexpr std::chrono::seconds kUntilStop{3};
constexpr std::chrono::seconds kUntilEnd{8};

/// Ends this process some time after its standard input has: nothing is left on a host whose launcher is gone.
class InputWatch {
 public:
  InputWatch() : thread_([](const std::stop_token& stop) { watch(stop); }) {}

 private:
  static bool ended() {
    pollfd entry = {STDIN_FILENO, POLLIN, 0};
    char ignored = 0;
    return ::poll(&entry, 1, 200) > 0 && ::read(STDIN_FILENO, &ignored, 1) <= 0;
  }

  static void watch(const std::stop_token& stop) {
    while (!stop.stop_requested() && !ended()) {
    }
    const Clock::time_point since = Clock::now();
    bool told = false;
    while (!stop.stop_requested()) {
      if (!told && Clock::now() - since > kUntilStop) {
        told = true;
        ::kill(::getpid(), SIGINT);  // for all, as those of other hosts are told likewise
      }
      if (Clock::now() - since > kUntilEnd) {
        ::_exit(1);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }

  std::jthread thread_;
};

/// A job whose coordinator may be on another machine than the launcher's: whoever has lost all of them ends, and nobody
/// before.
bool outlives_launcher(const JobInvitation& invitation) {
  RunConfig config;
  apply_config_text(config, invitation.config, "the launcher's run.yaml");
  return !config.store.empty();
}

}  // namespace

void add_invited_worker_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("invited-worker", "A worker that is told its job on its input")->group("");
  command->callback([&exit_code] {
    catch_stop_signals();
    std::signal(SIGPIPE, SIG_IGN);  // its words may have nobody to go to any more
    const JobInvitation invitation = JobInvitation::read(STDIN_FILENO, Clock::now() + kInvitationPatience);
    std::optional<InputWatch> watch;
    if (!outlives_launcher(invitation)) {
      watch.emplace();
    }
    std::error_code not_here;
    std::filesystem::current_path(invitation.working_folder, not_here);  // then relative names of data are not found
    const WorkerResult result = run_invited_worker(
        invitation, DISTBELIEF_VERSION, [] { return stop_signal_came(SIGINT); },
        [] { return stop_signal_came(SIGTERM); });
    exit_code = result.exit_code;
  });
}

}  // namespace distbelief
