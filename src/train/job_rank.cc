#include "train/job_rank.h"

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "cluster/child_process.h"
#include "cluster/coordinator.h"
#include "cluster/job_file.h"
#include "cluster/member.h"
#include "metrics/machine.h"
#include "train/coordinator_watch.h"
#include "train/job_invitation.h"
#include "train/job_store.h"
#include "train/join_request.h"
#include "train/machine_costs.h"
#include "train/model_cut.h"
#include "train/run_remainder.h"
#include "transport/mpi/mpi_fabric.h"
#include "transport/socket/local_address.h"

namespace distbelief {
namespace {

constexpr std::chrono::seconds kPatience{60};
/// Of the other ranks with the first, which may have to measure what a plan needs.
constexpr std::chrono::minutes kPlanPatience{10};
constexpr std::chrono::milliseconds kBetweenLooks{20};
/// Until a first rank that fails has said why.
constexpr std::chrono::seconds kSpeakPatience{5};
constexpr std::chrono::seconds kAnswerPatience{2};
constexpr std::chrono::seconds kAskPatience{1};
/// Of a first rank that has ended before others, whose coordinator its process stays with until it has ended, too.
constexpr std::chrono::hours kOthersPatience{24 * 365};

std::vector<std::string> coordinator_command(const RankOptions& options, const std::filesystem::path& folder) {
  std::vector<std::string> argv = {options.program, "coordinator", folder};
  if (options.launcher.several_hosts) {
    argv.emplace_back("--several-hosts");
  }
  return argv;
}

/// The coordinator of the first rank, which a thread watches: when it is killed, it is started again, and when it
/// hangs, it is killed (not with --store). Ends by itself when all workers are done or dead; killed when we give up
/// before.
class CoordinatorProcess {
 public:
  CoordinatorProcess(const RankOptions& options, const RunConfig& config, const std::filesystem::path& folder)
      : spec_({.name = "coordinator",
               .argv = coordinator_command(options, folder),
               .environment = options.environment,
               .log = folder / "logs" / "coordinator.log"}),
        say_(options.say),
        process_(std::make_unique<ChildProcess>(spec_)) {
    const Clock::time_point deadline = Clock::now() + kPatience;
    while (!std::filesystem::exists(job_file_path(folder))) {
      if (process_->reap() || Clock::now() > deadline) {
        throw Error("the coordinator did not start: " + last_lines(spec_.log, 3));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    if (config.store.empty()) {
      const JobFile job = read_job_file(folder);
      address_ = job.address;
      request_ = join_request(config, options.version, job.token, Role::observer);
      request_.on_event = [this](const MemberEvent& event) {
        is_over_ = is_over_ || std::holds_alternative<JobEnded>(event);
        if (const auto* lost = std::get_if<CoordinatorLost>(&event)) {
          is_unknown_ = lost->fenced;
          is_cut_off_ = true;
        }
      };
    }
    watch_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
  }

  /// Until it has ended by itself.
  void wait(Clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    over_changed_.wait_until(lock, deadline, [&] { return over_; });
  }

 private:
  void watch(const std::stop_token& stop) {
    for (int returns = 0; !stop.stop_requested();) {
      const Clock::time_point before = Clock::now();
      const auto end = process_->wait(before + kBetweenLooks);
      hang_watch_.woke(before, Clock::now());
      if (!end) {
        look_whether_it_hangs();
        continue;
      }
      hang_watch_.ended(Clock::now());
      if (end->signal == 0 || returns == kCoordinatorReturns) {
        break;
      }
      if (returns++ == 0) {
        spec_.argv.emplace_back("--again");
      }
      const pid_t pid = process_->pid();
      try {
        process_ = std::make_unique<ChildProcess>(spec_);
        say_(fmt::format("coordinator (pid {} on {}) {}: started again, training goes on", pid, this_machine().host,
                         describe(*end)));
      } catch (const Error&) {
        break;  // the machine has no more processes: all others notice that there is none
      }
    }
    const std::scoped_lock lock(mutex_);
    over_ = true;
    over_changed_.notify_all();
  }

  void look_whether_it_hangs() {
    if (!address_ || is_over_) {
      return;
    }
    if (is_cut_off_.exchange(false)) {
      member_.reset();
      if (is_unknown_) {  // one that came back does not know observers of before, and said so
        hang_watch_.heard_anew(Clock::now());
      }
    }
    if (member_ == nullptr) {
      member_ = Member::join(*address_, request_, Clock::now() + kAskPatience).member;
    }
    if (member_ != nullptr) {
      hang_watch_.heard(member_->term(), member_->heard_at());
    }
    if (hang_watch_.hangs(Clock::now())) {
      hang_watch_.ended(Clock::now());
      process_->signal(SIGKILL);
      say_(std::string(CoordinatorWatch::kVerdict));
    }
  }

  ProcessSpec spec_;
  const std::function<void(const std::string& line)> say_;
  std::optional<Address> address_;  // this, and all to the mutex: the thread's once there is one
  JoinRequest request_;
  std::atomic<bool> is_over_ = false;  // these three are told by the member's thread
  std::atomic<bool> is_cut_off_ = false;
  std::atomic<bool> is_unknown_ = false;
  std::unique_ptr<Member> member_;
  CoordinatorWatch hang_watch_;
  std::unique_ptr<ChildProcess> process_;
  std::mutex mutex_;
  std::condition_variable over_changed_;
  bool over_ = false;  // guarded by mutex_
  std::jthread watch_;
};

/// What the other ranks do when the first one has to say why there is no job: launchers end all ranks as soon as one
/// has ended, and it should have spoken by then.
WorkerResult let_the_first_speak(const std::function<bool()>& stop_requested) {
  for (const Clock::time_point deadline = Clock::now() + kSpeakPatience;
       Clock::now() < deadline && !stop_requested();) {
    std::this_thread::sleep_for(kBetweenLooks);
  }
  return {.exit_code = 2};
}

/// Until when ranks wait for the first one.
Clock::time_point meeting_deadline(const RunConfig& config) {
  return Clock::now() + kPatience + (needs_plan(config) ? kPlanPatience : std::chrono::minutes(0));
}

LockedFolder locked_folder(const RankOptions& options, const RunConfig& config, const PlanKnowledge& knowledge) {
  return options.resume.empty() ? prepare_run(config, knowledge) : change_run(options.resume, config, knowledge);
}

/// What only the first rank does: it makes the run's folder, or opens one, and starts the coordinator beside it.
struct JobBeginning {
  JobBeginning(const RankOptions& options, const RunConfig& config, RunObserver& observer)
      : locked(locked_folder(options, config,
                             {.cache = cache_folder(options.environment),
                              .note = [&observer](std::string_view line) { observer.note(line); }})),
        folder(locked.path) {
    remove_stale_job_file(folder);
    check_store(config);
    std::filesystem::create_directories(folder / "logs");
    coordinator.emplace(options, config, folder);
    if (!options.launcher.survivors_live) {
      const bool certain = options.launcher.kind != MpiLauncher::Kind::slurm || options.launcher.speaks_pmix;
      observer.note(
          fmt::format("note    when a worker dies this launcher {} the others too, without a last checkpoint; {} {}",
                      certain ? "ends" : "may end", options.launcher.remedy, certain ? "changes that" : "forbids it"));
    } else if (options.launcher.kind == MpiLauncher::Kind::open_mpi) {
      observer.note(
          "note    with --enable-recovery mpirun itself ends with code 0 whatever happens; "
          "summary.json says how the run ended");
    }
    if (config.restarts > 0) {
      observer.note("note    --restarts is for jobs that this program starts itself");
    }
  }

  /// Others may go on without this process where the end is not its to tell.
  void wait_for_the_end(const WorkerResult& result) {
    const bool others_go_on = result.left || !result.tells;
    coordinator->wait(Clock::now() + (others_go_on ? std::chrono::seconds(kOthersPatience) : kPatience));
  }

  LockedFolder locked;
  std::filesystem::path folder;
  std::optional<CoordinatorProcess> coordinator;
};

/// Over sockets ranks cannot hear from each other where the job is: they meet in the folder, which all must see.
std::filesystem::path meeting_folder(const RankOptions& options, const RunConfig& config) {
  const std::filesystem::path folder = options.resume.empty() ? config.out : options.resume;
  if (folder.empty()) {
    throw InputError("--transport socket under a launcher of many processes needs --out DIR, a folder that all see");
  }
  return folder;
}

/// Waits until a coordinator answers at the address that the folder's job.json has; one of an earlier job does not.
JobAccess wait_for_job(const std::filesystem::path& folder, Clock::time_point deadline) {
  std::string reason = "there is no job.json";
  while (Clock::now() < deadline) {
    try {
      const JobFile job = read_job_file(folder);
      const FoundListener found = find_listener(job.addresses(), Clock::now() + kAnswerPatience);
      if (found.address) {
        return {.address = *found.address, .token = job.token, .config = config_of_run(folder)};
      }
      reason = found.reason;
    } catch (const FileError& error) {
      reason = error.what();
    } catch (const InputError& error) {
      reason = error.what();
    }
    std::this_thread::sleep_for(kBetweenLooks);
  }
  throw Error(fmt::format("{}: the first rank started no job here: {}", folder.string(), reason));
}

WorkerOptions worker_options(const RankOptions& options, const std::filesystem::path& folder) {
  WorkerOptions worker;
  worker.folder = folder;
  worker.resumes = !options.resume.empty();
  worker.version = options.version;
  worker.leave_requested = options.leave_requested;
  return worker;
}

/// One line when the run to go on with has nothing left to do; else empty.
std::string nothing_left(const RankOptions& options, const RunConfig& config) {
  return options.resume.empty() ? "" : nothing_left_to_do(options.resume, config);
}

/// What the first rank tells the others instead of where the job is.
constexpr std::string_view kNothingLeft = "nothing left";

WorkerResult nothing_done(const std::string& line, RunObserver& observer) {
  if (!line.empty()) {
    observer.note(line);
  }
  return {.exit_code = 0};
}

WorkerResult train_over_sockets(const RankOptions& options, const RunConfig& config, RunObserver& observer,
                                const std::function<bool()>& stop_requested) {
  const bool first = options.launcher.rank == 0;
  std::filesystem::path folder;
  try {
    folder = meeting_folder(options, config);
    if (const std::string line = nothing_left(options, config); !line.empty()) {  // all see the same folder
      return nothing_done(first ? line : "", observer);
    }
  } catch (const InputError&) {
    if (first) {
      throw;
    }
    return let_the_first_speak(stop_requested);
  }
  std::optional<JobBeginning> begun;
  if (first) {
    begun.emplace(options, config, observer);
  }
  const JobAccess job = wait_for_job(folder, meeting_deadline(config));
  WorkerOptions worker = worker_options(options, folder);
  worker.rank = options.launcher.rank;
  WorkerResult result = work_in_job(job, worker, {}, &observer, stop_requested);
  if (begun) {
    begun->wait_for_the_end(result);
  }
  return result;
}

JobInvitation invitation_to(const std::filesystem::path& folder) {
  const JobFile job = read_job_file(folder);
  JobInvitation invitation;
  invitation.folder = std::filesystem::absolute(folder);
  invitation.addresses = job.addresses();
  invitation.token = job.token;
  invitation.config = config_text(config_of_run(folder));
  return invitation;
}

/// Empty, or why the ranks that this launcher started cannot meet over MPI. Open MPI would end the process over it.
std::string why_no_mpi(const MpiLauncher& launcher) {
  if (launcher.kind == MpiLauncher::Kind::slurm && mpi_of_this_build() == "Open MPI" && !launcher.speaks_pmix) {
    return "Open MPI's ranks cannot meet under this srun: add --mpi=pmix to it, or train over sockets with "
           "--transport socket --out DIR";
  }
  return {};
}

}  // namespace

WorkerResult train_as_rank(const RankOptions& options, RunConfig config, RunObserver& observer,
                           const std::function<bool()>& stop_requested) {
  const bool first = options.launcher.rank == 0;
  const std::int64_t servers = processes_of(config) - config.workers;
  if (options.launcher.size <= servers) {
    if (!first) {
      return let_the_first_speak(stop_requested);
    }
    throw InputError(fmt::format("{} processes were started: too few for --servers {} and a worker",
                                 options.launcher.size, servers));
  }
  if (options.workers != 0 && options.workers + servers != options.launcher.size) {
    if (!first) {
      return let_the_first_speak(stop_requested);
    }
    throw InputError(
        fmt::format("{} processes were started, but --workers {}{} needs {}: start that many, or say "
                    "--workers {}",
                    options.launcher.size, options.workers, servers > 0 ? fmt::format(" with {} servers", servers) : "",
                    options.workers + servers, options.launcher.size - servers));
  }
  config.workers = options.launcher.size - servers;
  config.hosts.clear();  // the launcher has chosen them
  config.standby = 0;    // and starts nobody besides
  if (config.transport == "socket") {
    return train_over_sockets(options, config, observer, stop_requested);
  }
  if (const std::string reason = why_no_mpi(options.launcher); !reason.empty()) {
    if (first) {
      throw InputError(reason);
    }
    return let_the_first_speak(stop_requested);
  }
  std::optional<JobBeginning> begun;
  std::exception_ptr failure;
  std::string told;  // an invitation; empty when the first rank failed
  std::string line;
  if (first) {
    try {
      line = nothing_left(options, config);
      told = kNothingLeft;
      if (line.empty()) {
        told.clear();
        begun.emplace(options, config, observer);
        told = invitation_to(begun->folder).text();
      }
    } catch (...) {
      failure = std::current_exception();  // the others wait in MPI_Init: they have to be told
    }
  }
  MpiWorld world(meeting_deadline(config));
  if (!failure && world.size() != options.launcher.size) {
    if (!first) {
      return let_the_first_speak(stop_requested);
    }
    throw InputError(
        fmt::format("{} processes were started, but {} sees {}: start them with its own mpirun, or train over sockets "
                    "with --transport socket --out DIR",
                    options.launcher.size, world.library(), world.size()));
  }
  auto fabric = std::make_unique<MpiFabric>(world);
  const Outcome outcome = share_text(*fabric, told, kPatience);
  if (failure || !outcome.ok() || told.empty() || told == kNothingLeft) {
    fabric.reset();
    const bool finished = world.finish(Clock::now() + kPatience);
    if (failure) {
      std::rethrow_exception(failure);
    }
    if (told == kNothingLeft) {
      WorkerResult result = nothing_done(line, observer);
      result.leave_at_once = !finished;
      return result;
    }
    WorkerResult result = let_the_first_speak(stop_requested);
    result.leave_at_once = !finished;
    return result;
  }
  const JobInvitation invitation = JobInvitation::parse(told);
  const JobAccess job = access_of(invitation, "the first rank's run.yaml");
  WorkerResult result = work_in_job(job, worker_options(options, invitation.folder), {&world, std::move(fabric)},
                                    &observer, stop_requested);
  if (begun) {
    begun->wait_for_the_end(result);
  }
  return result;
}

}  // namespace distbelief
