#include "train/job_launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "base/error.h"
#include "cluster/coordinator.h"
#include "cluster/job_file.h"
#include "cluster/launcher.h"
#include "cluster/member.h"
#include "cluster/orphans.h"
#include "metrics/machine.h"
#include "train/coordinator_watch.h"
#include "train/job_hosts.h"
#include "train/job_invitation.h"
#include "train/job_store.h"
#include "train/join_request.h"
#include "train/lost_summary.h"
#include "train/process_log.h"
#include "train/run_relay.h"
#include "transport/mpi/mpi_leftovers.h"
#include "transport/mpi/mpi_world.h"

namespace distbelief {
namespace {

constexpr int kInterrupted = 130;  // exit code
constexpr std::chrono::seconds kBeginPatience{30};
constexpr std::chrono::milliseconds kTurn{50};
constexpr std::chrono::milliseconds kShortTurn{5};
/// For what the coordinator still has to say when all processes have ended.
constexpr std::chrono::milliseconds kHearPatience{10'000};
/// Between the end of the job and that of its processes. Longer than an rsh whose host is cut off deserves.
constexpr std::chrono::seconds kEndPatience{3};
constexpr std::chrono::seconds kOrphanPatience{8};
/// For a coordinator that took over elsewhere.
constexpr std::chrono::seconds kBetweenSearches{1};
constexpr std::chrono::milliseconds kSearchPatience{500};
constexpr const char* kCoordinatorName = "coordinator";

/// What the member's thread hears, for the launcher's thread to act on.
class Inbox {
 public:
  void put(const MemberEvent& event) {
    const std::scoped_lock lock(mutex_);
    events_.push_back(event);
    came_.notify_all();
  }
  /// Until there is something to take, or the deadline.
  void wait(Clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    came_.wait_until(lock, deadline, [&] { return !events_.empty(); });
  }
  std::vector<MemberEvent> take() {
    const std::scoped_lock lock(mutex_);
    return std::exchange(events_, {});
  }

 private:
  std::mutex mutex_;
  std::condition_variable came_;
  std::vector<MemberEvent> events_;  // guarded by mutex_
};

/// One job, from its start to its end.
class Job {
 public:
  /// `restarts`: how many there were before, of the whole job.
  Job(const LaunchOptions& options, const RunConfig& config, RunObserver& observer, int restarts)
      : options_(options),
        config_(config),
        restarts_(restarts),
        observer_(observer),
        logs_(options.folder / "logs"),
        launcher_({.host = this_machine().host, .on_exit = [this](const ProcessExit& exit) { saw(exit); }}) {
    std::filesystem::create_directories(logs_);
  }

  struct Result {
    std::optional<RunSummary> summary;
    std::string failure;                           ///< why there is no summary
    std::string death;                             ///< who died and why, when that is what ended the job; else empty
    bool stopped_at_once = false;                  ///< the user asked twice
    std::vector<TeamEvent> losses = {};            ///< of workers and servers, as the coordinator told
    std::filesystem::file_time_type started = {};  ///< summary.json of before is not of this start
    bool bad_input = false;  ///< a process could not use what the user gave it, and says so in `failure`
  };

  Result run(const std::function<bool()>& stop_requested) {
    start_coordinator();
    join();
    start_workers();
    start_standbys();
    bool stop_ordered = false;
    bool all_ended = false;
    while (!all_ended) {
      if (!stop_ordered && stop_requested()) {
        stop_ordered = true;
        member_->order({.what = Order::What::stop, .reason = "the user asked for it"});
      }
      if (!stopped_at_once_ && options_.stop_at_once && options_.stop_at_once()) {
        stopped_at_once_ = true;
        launcher_.stop();
      }
      const Clock::time_point before = Clock::now();
      all_ended = launcher_.run_until(before + kTurn);
      coordinator_watch_.woke(before, Clock::now());
      handle_events();
      follow_coordinator();
      watch_coordinator();
      start_newcomers();
      if (stop_at_ && Clock::now() > *stop_at_) {
        launcher_.stop();
        stop_at_.reset();
      }
    }
    hear_the_rest();
    std::error_code ignored;
    for (const std::filesystem::path& file :
         {job_file_path(options_.folder), coordinator_state_path(options_.folder)}) {
      std::filesystem::remove(file, ignored);  // a coordinator that was killed could not
    }
    if (!summary_ && succeeded_) {  // the one that would have handed it on was killed, and its teller was gone
      summary_ = written_summary(options_.folder, started_);
    }
    const Launcher::Result& ends = launcher_.result();
    if (death_.empty() && ends.culprit && ends.ended[*ends.culprit].end.signal != 0) {
      note_death(ends.reason(), "", log_of(ends.ended[*ends.culprit].name));  // the coordinator, or mpirun itself
    }
    const bool bad_input = !summary_ && bad_input_;  // whoever died before, of that the job did not end
    const bool died = !death_.empty() && !bad_input && (!summary_ || summary_->status == "lost");
    return {.summary = summary_,
            .failure = summary_    ? ""
                       : bad_input ? problem_
                                   : failure(),
            .death = died ? death_ : "",
            .stopped_at_once = stopped_at_once_,
            .losses = losses_,
            .started = started_,
            .bad_input = bad_input};
  }

 private:
  void saw(const ProcessExit& exit) {
    if (member_ != nullptr) {
      member_->report_exit(exit);
    }
    if (exit.name == kCoordinatorName) {
      coordinator_watch_.ended(Clock::now());
    }
    if (exit.name == kCoordinatorName && exit.starts_again) {
      observer_.note(fmt::format("coordinator (pid {} on {}) {}: started again, training goes on", exit.pid, exit.host,
                                 describe(ProcessEnd{.exit_code = exit.exit_code, .signal = exit.signal})));
    }
  }

  ProcessSpec process(const std::string& name, std::vector<std::string> argv) const {
    return {.name = name, .argv = std::move(argv), .environment = environment(), .log = log_of(name)};
  }

  /// Of "worker 1", and of "worker 1 on alpha".
  std::filesystem::path log_of(std::string name) const {
    name = name.substr(0, name.find(" on "));
    std::ranges::replace(name, ' ', '-');
    return logs_ / (name + ".log");
  }

  /// One that we started has printed into that of the process, whose name may say nothing of its rank.
  std::filesystem::path log_of(const MemberInfo& member) const {
    for (const Launcher::Ended& process : launcher_.result().ended) {
      if (process.pid == member.pid && member.host == this_machine().host) {
        return log_of(process.name);
      }
    }
    return process_log_path(options_.folder, role_name(member.role), member.rank.value);
  }

  std::vector<std::string> environment() const {
    std::vector<std::string> variables = options_.environment;
    variables.push_back("OMP_WAIT_POLICY=passive");  // a worker that waits leaves the core to the others
    if (options_.transport == "mpi") {
      variables.push_back("OMPI_MCA_orte_enable_recovery=1");  // a worker's death leaves the others alive
      if (options_.as_root) {
        variables.push_back("OMPI_ALLOW_RUN_AS_ROOT=1");
        variables.push_back("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1");
      }
    }
    return variables;
  }

  void start_coordinator() {
    remove_stale_job_file(options_.folder);
    std::vector<std::string> argv = {options_.program, "coordinator", options_.folder};
    if (restarts_ > 0) {
      argv.insert(argv.end(), {"--restarts", std::to_string(restarts_)});
    }
    launcher_.start(process(kCoordinatorName, std::move(argv)),
                    {.times = kCoordinatorReturns, .only_when_killed = true, .arguments = {"--again"}},
                    config_.store.empty() ? Launcher::WhenLost::stop_all : Launcher::WhenLost::others_go_on);
    const Clock::time_point deadline = Clock::now() + kBeginPatience;
    while (!std::filesystem::exists(job_file_path(options_.folder))) {
      if (launcher_.run_until(Clock::now() + std::chrono::milliseconds(5)) || Clock::now() > deadline) {
        throw Error(failure());
      }
    }
  }

  void join() {
    job_ = read_job_file(options_.folder);
    JoinRequest request = join_request(config_, options_.version, job_.token, Role::launcher);
    request.on_event = [this](const MemberEvent& event) { inbox_.put(event); };
    Member::Joined joined;
    std::atomic<bool> done = false;
    {
      const std::jthread joins([&] {
        joined = Member::join(job_.address, request, Clock::now() + kBeginPatience);
        done = true;
      });
      while (!done) {  // the coordinator may die meanwhile, as at any time, and is started again by this thread
        if (launcher_.run_until(Clock::now() + kShortTurn)) {
          std::this_thread::sleep_for(kShortTurn);
        }
      }
    }
    if (joined.member == nullptr) {
      throw Error("cannot reach the job's coordinator: " + joined.reason);
    }
    member_ = std::move(joined.member);
  }

  /// When a coordinator on another machine has taken over, job.json says so.
  void follow_coordinator() {
    if (!find_coordinator_ || member_->term() <= job_.term || Clock::now() < next_search_) {
      return;
    }
    next_search_ = Clock::now() + kBetweenSearches;
    const std::optional<JobFile> found = find_coordinator_(Clock::now() + kSearchPatience);
    if (!found || found->term < member_->term()) {
      return;
    }
    const Address before = std::exchange(job_, *found).address;
    if (job_.address == before) {
      return;  // it came back, and has written the file itself
    }
    observer_.note(fmt::format("the coordinator is now at {}: training goes on", job_.address.text()));
    try {
      write_job_file(options_.folder, job_);
    } catch (const FileError&) {
      // a full disk: those who look ask the store first
    }
  }

  /// One that hangs is started again as any that died. With a store it is that which says who may act.
  void watch_coordinator() {
    coordinator_watch_.heard(member_->term(), member_->heard_at());
    const Clock::time_point now = Clock::now();
    if (over_ || !config_.store.empty() || !coordinator_watch_.hangs(now)) {
      return;
    }
    coordinator_watch_.ended(now);
    if (launcher_.kill(kCoordinatorName)) {
      observer_.note(CoordinatorWatch::kVerdict);
    }
  }

  /// Over sockets on the hosts of --hosts: each is told on its standard input what it must know.
  void start_workers_on_hosts() {
    JobInvitation invitation = {.folder = std::filesystem::absolute(options_.folder),
                                .working_folder = std::filesystem::current_path(),
                                .addresses = job_.addresses(),
                                .token = job_.token,
                                .config = config_text(config_of_run(options_.folder)),
                                .resumes = options_.resumes || restarts_ > 0,
                                .restarts = restarts_};
    int rank = 0;
    for (const JobHost& host : hosts_of_ranks(config_, false)) {
      const std::vector<std::string> argv =
          command_on(host, config_, {"env", "OMP_WAIT_POLICY=passive", options_.program, "invited-worker"});
      ProcessSpec spec = process(fmt::format("{} {} on {}", role_of_rank(config_, rank), rank, host.name), argv);
      invitation.host = host.name;
      invitation.rank = rank++;
      invitation.launch = launcher_.next_launch();
      spec.input = invitation.text();
      launcher_.start(spec, {}, Launcher::WhenLost::others_go_on);
    }
  }

  void start_workers() {
    if (options_.transport == "socket" && !config_.hosts.empty()) {
      start_workers_on_hosts();
      return;
    }
    std::vector<std::string> worker = {options_.program, "worker", options_.folder, "--transport", options_.transport};
    if (options_.resumes || restarts_ > 0) {
      worker.emplace_back("--resumes");
    }
    if (restarts_ > 0) {
      worker.insert(worker.end(), {"--restarts", std::to_string(restarts_)});
    }
    if (options_.transport == "mpi") {
      std::vector<std::string> argv = {options_.mpirun};
      if (mpi_of_this_build() == "MPICH") {
        argv.insert(argv.end(), {"-bind-to", "none", "-disable-auto-cleanup"});
      } else {
        argv.insert(argv.end(), {"--oversubscribe", "--bind-to", "none"});
      }
      argv.insert(argv.end(), {"-n", std::to_string(processes_of(config_))});
      const auto hosts = mpi_host_options(mpi_of_this_build(), config_, environment());
      argv.insert(argv.end(), hosts.begin(), hosts.end());
      argv.insert(argv.end(), worker.begin(), worker.end());
      launcher_.start(process("mpirun", std::move(argv)));
      return;
    }
    worker.insert(worker.end(), {"--rank", ""});
    for (std::int64_t rank = 0; rank < processes_of(config_); ++rank) {
      worker.back() = std::to_string(rank);
      const std::string name = fmt::format("{} {}", role_of_rank(config_, static_cast<int>(rank)), rank);
      launcher_.start(process(name, worker), {}, Launcher::WhenLost::others_go_on);
    }
  }

  void start_standbys() {
    for (std::int64_t i = 1; i <= config_.standby; ++i) {
      launcher_.start(process(fmt::format("standby {}", i), {options_.program, "worker", options_.folder, "--transport",
                                                             "socket", "--late", "--standby"}),
                      {}, Launcher::WhenLost::others_go_on);
    }
  }

  /// What the coordinator has ordered.
  void start_newcomers() {
    for (; due_ > 0 && !over_; --due_) {
      const std::string name = fmt::format("{} {}", kStartedWorker, ++newcomers_);
      launcher_.start(process(name, {options_.program, "worker", options_.folder, "--transport", "socket", "--late"}),
                      {}, Launcher::WhenLost::others_go_on);
    }
    for (; due_servers_ > 0 && !over_; --due_servers_) {
      const std::string name = fmt::format("{} {}", kStartedServer, ++newcomers_);
      launcher_.start(process(name, {options_.program, "worker", options_.folder, "--transport", "socket", "--late",
                                     "--as-server"}),
                      {}, Launcher::WhenLost::others_go_on);
    }
  }

  /// All processes have ended, but what the coordinator said at last may still be on its way to this thread.
  void hear_the_rest() {
    const std::vector<Launcher::Ended>& ended = launcher_.result().ended;
    const bool coordinator_spoke =  // or another does, elsewhere
        !config_.store.empty() || std::ranges::any_of(ended, [](const Launcher::Ended& process) {
          return process.name == kCoordinatorName && process.end.signal == 0;
        });
    const Clock::time_point deadline = Clock::now() + (coordinator_spoke ? kHearPatience : kTurn);
    handle_events();
    while (!over_ && Clock::now() < deadline) {
      inbox_.wait(deadline);
      handle_events();
    }
  }

  void handle_events() {
    for (const MemberEvent& event : inbox_.take()) {
      if (const auto* notice = std::get_if<Notice>(&event)) {
        if (auto summary = replay_line(notice->text, observer_)) {
          summary_ = std::move(summary);
        }
      } else if (const auto* lost = std::get_if<MemberLost>(&event)) {
        losses_.push_back(
            {.what = TeamEvent::What::lost, .who = describe(lost->member), .why = lost->reason, .step = 0});
        note_death(fmt::format("{}: {}", describe(lost->member), lost->reason), lost->remedy, log_of(lost->member));
      } else if (const auto* order = std::get_if<Order>(&event)) {
        stopping_ = stopping_ || order->what == Order::What::stop;
        due_ += order->what == Order::What::start ? order->workers : 0;
        due_servers_ += order->what == Order::What::start ? order->servers : 0;
      } else if (const auto* ended = std::get_if<JobEnded>(&event)) {
        over_ = true;
        succeeded_ = ended->succeeded;
        bad_input_ = ended->bad_input;
        if (!ended->succeeded && problem_.empty()) {
          problem_ = ended->reason;
        }
        stop_at_ = Clock::now() + kEndPatience;
      } else if (const auto* gone = std::get_if<CoordinatorLost>(&event)) {
        over_ = true;
        problem_ = "the coordinator is lost: " + gone->reason;
        note_death(problem_, "", logs_ / "coordinator.log");
        launcher_.stop();
      }
    }
  }

  void note_death(const std::string& who, const std::string& remedy, const std::filesystem::path& log) {
    const Clock::time_point before = std::exchange(death_heard_, Clock::now());
    // Who dies while all end did not end the job.
    death_ = death_.empty() || (!stopping_ && is_another_accident(before, death_heard_)) ? who : death_;
    observer_.note(fmt::format("lost: {}{}{}", who, remedy.empty() ? "" : "; ", remedy));
    for (const std::string& line : last_words(log)) {
      observer_.note(line);
    }
  }

  std::string failure() const {
    if (stopped_at_once_) {
      return fmt::format("stopped at once, without a checkpoint; go on with: distbelief train --resume {}",
                         options_.folder.string());
    }
    const Launcher::Result& result = launcher_.result();
    std::string text = result.reason();
    if (text.empty()) {
      text = problem_.empty() ? "the job ended without a result" : problem_;
    }
    if (!result.last_lines.empty() && death_.empty()) {
      text += "; its last words: " + result.last_lines;
    }
    if (!death_.empty()) {
      text += fmt::format("; go on with: distbelief train --resume {}", options_.folder.string());
    }
    return text + fmt::format(" (logs are in {})", logs_.string());
  }

  const LaunchOptions& options_;
  const RunConfig& config_;
  const int restarts_;
  int due_ = 0;          // newcomers that are to be started
  int due_servers_ = 0;  // likewise servers
  int newcomers_ = 0;    // that were
  RunObserver& observer_;
  const std::filesystem::path logs_;
  const std::function<std::optional<JobFile>(Clock::time_point)> find_coordinator_ = coordinator_finder(config_);
  JobFile job_;
  Clock::time_point next_search_ = {};
  CoordinatorWatch coordinator_watch_;
  Inbox inbox_;
  std::unique_ptr<Member> member_;
  Launcher launcher_;
  std::optional<RunSummary> summary_;
  std::string problem_;
  std::string death_;  // the first of those that came together
  Clock::time_point death_heard_ = {};
  std::vector<TeamEvent> losses_;
  bool stopping_ = false;
  bool succeeded_ = false;  // these two: as the coordinator said
  bool bad_input_ = false;
  const std::filesystem::file_time_type started_ = std::filesystem::file_time_type::clock::now();
  bool stopped_at_once_ = false;              // the user asked a second time
  bool over_ = false;                         // no events will come
  std::optional<Clock::time_point> stop_at_;  // the job has ended; who has not by then is stopped or cut off
};

/// Of the run whose members died before one could tell.
RunSummary summary_of_lost(const LaunchOptions& options, const RunConfig& config, const Job::Result& result,
                           int restarts) {
  return {.status = "lost",
          .workers = static_cast<int>(config.workers),
          .events = result.losses,
          .servers = static_cast<int>(processes_of(config) - config.workers),
          .restarts = restarts,
          .problem = result.death,
          .folder = options.folder};
}

/// summary.json of a start that ended with a death: a script waits for it.
void write_if_nobody_did(const RunSummary& summary, const Job::Result& result, RunObserver& observer) {
  std::error_code missing;
  const auto written = std::filesystem::last_write_time(summary.folder / "summary.json", missing);
  if (!missing && written >= result.started) {
    return;
  }
  try {
    write_lost_summary(summary);
  } catch (const InputError& error) {
    observer.note(fmt::format("no summary: {}", error.what()));
  }
}

}  // namespace

std::filesystem::path temporary_folder(const std::vector<std::string>& environment) {
  constexpr std::string_view kVariable = "TMPDIR=";
  for (const std::string& variable : environment) {
    if (variable.starts_with(kVariable) && variable.size() > kVariable.size()) {
      return variable.substr(kVariable.size());
    }
  }
  return "/tmp";
}

RunSummary train_in_processes(const LaunchOptions& options, const RunConfig& config, RunObserver& observer,
                              const std::function<bool()>& stop_requested) {
  // An mpirun that had to be killed leaves its session behind; so did those of earlier jobs.
  const auto remove_leftovers = [&] {
    if (options.transport == "mpi") {
      (void)remove_mpi_leftovers(temporary_folder(options.environment));
    }
  };
  remove_leftovers();
  if (options.transport == "mpi") {
    adopt_orphans();
  }
  for (int restarts = 0;; ++restarts) {
    const Job::Result result = Job(options, config, observer, restarts).run(stop_requested);
    if (options.transport == "mpi") {
      end_orphans(Clock::now() + kOrphanPatience);  // of an mpirun that had to be killed
    }
    remove_leftovers();
    if (!result.death.empty() && restarts < config.restarts && !stop_requested()) {
      observer.note(fmt::format("restart {} of {} from the newest checkpoint; lost was {}", restarts + 1,
                                config.restarts, result.death));
      continue;
    }
    if (!result.summary && result.bad_input) {
      throw InputError(result.failure);
    }
    if (!result.summary && result.stopped_at_once) {
      throw Error(result.failure, kInterrupted);
    }
    if (!result.summary && result.death.empty() && stop_requested()) {
      return {.status = "interrupted", .folder = options.folder};
    }
    if (!result.summary && result.death.empty()) {
      throw Error(result.failure);
    }
    const RunSummary summary = result.summary ? *result.summary : summary_of_lost(options, config, result, restarts);
    if (summary.status == "lost") {
      write_if_nobody_did(summary, result, observer);
    }
    return summary;
  }
}

}  // namespace distbelief
