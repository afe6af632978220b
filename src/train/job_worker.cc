#include "train/job_worker.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>

#include "base/error.h"
#include "cluster/job_file.h"
#include "cluster/member.h"
#include "metrics/machine.h"
#include "train/core_share.h"
#include "train/job_hosts.h"
#include "train/job_tls.h"
#include "train/process_log.h"
#include "train/run_relay.h"
#include "transport/mpi/mpi_fabric.h"
#include "transport/socket/local_address.h"
#include "transport/socket/socket_fabric.h"

namespace distbelief {
namespace {

constexpr std::chrono::seconds kJoinPatience{60};
constexpr std::chrono::seconds kLeavePatience{5};
/// A data plane sees a closed connection at once; what became of its process is known when it has not come back.
constexpr std::chrono::seconds kExplainPatience{3};

/// What the coordinator says, made known to the thread that trains.
class ControlEvents {
 public:
  void operator()(const MemberEvent& event) {
    write_down(event);
    if (const auto* lost = std::get_if<MemberLost>(&event)) {
      const std::scoped_lock lock(mutex_);
      lost_.emplace_back(lost->member.rank, describe(lost->member) + ": " + lost->reason);
      tell_fabric();
      changed_.notify_all();
    } else if (const auto* view = std::get_if<View>(&event); view != nullptr && view->number > 1 && !view->peaceful) {
      // Who failed and left is not there any more either.
      const std::scoped_lock lock(mutex_);
      changed_view_ = view->reason;
      tell_fabric();
    } else if (const auto* order = std::get_if<Order>(&event)) {
      stop_ = stop_ || order->what == Order::What::stop;
    } else if (const auto* gone = std::get_if<CoordinatorLost>(&event)) {
      const std::scoped_lock lock(mutex_);
      coordinator_lost_ = gone->reason;
      tell_fabric();
      changed_.notify_all();
    }
  }

  /// From now on deaths are told to the fabric, and those of before at once.
  void set_fabric(Fabric* fabric) {
    const std::scoped_lock lock(mutex_);
    fabric_ = fabric;
    tell_fabric();
  }
  /// From now on what happens is written down there. Borrowed.
  void set_log(const ProcessLog* log) { log_ = log; }
  bool stop() const { return stop_; }
  std::vector<Rank> lost() {
    const std::scoped_lock lock(mutex_);
    std::vector<Rank> ranks;
    for (const auto& [rank, reason] : lost_) {
      ranks.push_back(rank);
    }
    return ranks;
  }

  /// Why the first member was lost, once that is known; what was seen of it, when nobody says more in time.
  std::string explain(const std::string& seen) {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, Clock::now() + kExplainPatience,
                        [&] { return !lost_.empty() || !coordinator_lost_.empty(); });
    return lost_.empty() ? seen : lost_.front().second;
  }
  /// Whether all members before `position` are lost.
  bool first_alive(int position) {
    const std::scoped_lock lock(mutex_);
    for (int rank = 0; rank < position; ++rank) {
      if (std::ranges::none_of(lost_, [&](const auto& lost) { return lost.first == Rank{rank}; })) {
        return false;
      }
    }
    return position > 0;
  }

 private:
  void write_down(const MemberEvent& event) const {
    const ProcessLog* log = log_;
    if (log == nullptr) {
      return;
    }
    if (const auto* lost = std::get_if<MemberLost>(&event)) {
      log->line(fmt::format("heard: {} is lost: {}", describe(lost->member), lost->reason));
    } else if (const auto* view = std::get_if<View>(&event)) {
      log->line(fmt::format("heard: view {} with {} members: {}", view->number, view->members.size(), view->reason));
    } else if (const auto* order = std::get_if<Order>(&event)) {
      log->line(fmt::format("heard: order to {}: {}", order->what == Order::What::stop ? "stop" : "write a checkpoint",
                            order->reason));
    } else if (const auto* gone = std::get_if<CoordinatorLost>(&event)) {
      log->line(fmt::format("the coordinator is lost: {}", gone->reason));
    }
  }

  void tell_fabric() {
    if (fabric_ == nullptr) {
      return;
    }
    for (const auto& [rank, reason] : lost_) {
      lose(rank, reason);
    }
    // A group without one of its members cannot go on, and whoever waits for a living one may wait in vain. Without a
    // coordinator nobody can tell who is alive.
    std::string reason = changed_view_;
    if (!coordinator_lost_.empty()) {
      reason = "the coordinator is lost: " + coordinator_lost_;
    }
    for (int rank = 0; !reason.empty() && rank < fabric_->size(); ++rank) {
      lose(Rank{rank}, "is not waited for any more: " + reason);
    }
  }

  void lose(Rank rank, const std::string& reason) {
    if (rank != fabric_->rank() && rank.value >= 0 && rank.value < fabric_->size()) {
      fabric_->lose(rank, reason);
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  Fabric* fabric_ = nullptr;
  std::vector<std::pair<Rank, std::string>> lost_;
  std::string changed_view_;
  std::string coordinator_lost_;
  std::atomic<bool> stop_ = false;
  std::atomic<const ProcessLog*> log_ = nullptr;
};

/// Writes down what happens. The leader's also relays what people should see, or shows it.
class WorkerObserver : public RunObserver {
 public:
  WorkerObserver(Member& member, WorkerActivity& activity, const ProcessLog& log, bool leads, RunObserver* show)
      : activity_(activity),
        log_(log),
        relay_([&](const std::string& line) { member.notice(line); }),
        shown_(show == nullptr ? relay_ : *show),
        leads_(leads) {}
  void started(const std::vector<std::string>& lines) override {
    for (const std::string& line : lines) {
      log_.line(line);
    }
    if (leads_) {
      shown_.started(lines);
    }
  }
  void stepped(const ProgressState& state) override {
    activity_.stepped(state);
    if (leads_) {
      shown_.stepped(state);
    }
  }
  void epoch_ended(const EpochReport& report) override {
    log_.line(fmt::format("epoch {} ended: loss {:.4f}", report.epoch, report.train_loss));
    if (leads_) {
      shown_.epoch_ended(report);
    }
  }
  void note(std::string_view text) override {
    log_.line(text);
    shown_.note(text);
  }
  RunRelay& relay() { return relay_; }

 private:
  WorkerActivity& activity_;
  const ProcessLog& log_;
  RunRelay relay_;
  RunObserver& shown_;
  const bool leads_;
};

std::unique_ptr<Fabric> connect(const View& view, Rank self, SocketListener& listener, const JobAccess& job) {
  std::vector<Address> addresses;
  for (const MemberInfo& member : view.members) {
    addresses.push_back(Address::parse(member.data_address));
  }
  SocketFabricOptions options;
  options.token = job.token;
  options.tls = tls_of(job.config);
  options.job = "distbelief";
  options.view = static_cast<std::uint32_t>(view.number);
  SocketFabricResult result = connect_socket_fabric(self, addresses, listener, options, Clock::now() + kJoinPatience);
  if (result.fabric == nullptr) {
    throw Error("cannot reach the other workers: " + result.reason);
  }
  return std::move(result.fabric);
}

/// Shares the cores of this machine out among the members that may use the same ones. Returns with how many this
/// process shares what it may use now.
int share_cores(Group& group, const View& view, const RunConfig& config) {
  std::vector<std::uint64_t> usable(view.members.size());
  const auto self = static_cast<std::size_t>(group.position());
  usable[self] = usable_cores_digest();
  if (!group.all_gather(usable, Clock::now() + kJoinPatience).ok()) {
    return group.size();  // whoever is lost is noticed and named when training begins
  }
  int index = 0;
  int sharers = 0;
  for (std::size_t i = 0; i < usable.size(); ++i) {
    if (usable[i] == usable[self] && view.members[i].host == view.members[self].host) {
      index += i < self ? 1 : 0;
      ++sharers;
    }
  }
  const bool bound = config.bind == "cores" && !bind_to_share(index, sharers, static_cast<int>(config.threads)).empty();
  return bound ? 1 : sharers;
}

void show_last_words(RunObserver& show, const std::filesystem::path& folder, Rank rank) {
  show.note(fmt::format("the last lines of worker {} ({}):", rank.value, worker_log_path(folder, rank.value).string()));
  for (const std::string& line : last_words(worker_log_path(folder, rank.value))) {
    show.note(line);
  }
}

int exit_code_of(const RunSummary& summary) {
  return summary.status == "diverged" ? 3 : summary.status == "lost" ? 4 : 0;
}

/// Rank 0 reads the folder, and tells the others, who may be on machines that do not see it.
WorkerResult run_mpi_worker(WorkerOptions options, const std::function<bool()>& stop_requested) {
  MpiWorld world(Clock::now() + kJoinPatience);
  options.log_is_output = !std::filesystem::exists(options.folder);
  if (!options.log_is_output) {
    ProcessLog(worker_log_path(options.folder, world.rank().value))
        .take_output();  // what mpirun would mix with others'
  }
  auto fabric = std::make_unique<MpiFabric>(world);
  JobInvitation invitation;
  std::string text;
  std::exception_ptr failure;
  if (world.rank() == Rank{0}) {
    try {
      const JobFile job = read_job_file(options.folder);
      invitation.addresses = job.addresses();
      invitation.token = job.token;
      invitation.config = config_text(config_of_run(options.folder));
      text = invitation.text();
    } catch (...) {
      failure = std::current_exception();  // the others wait to be told
    }
  }
  const Outcome outcome = share_text(*fabric, text, kJoinPatience);
  if (failure || !outcome.ok() || text.empty()) {
    world.leave_without_finalize();
    if (failure) {
      std::rethrow_exception(failure);
    }
    return {.exit_code = 2, .leave_at_once = true};
  }
  const JobAccess access = access_of(JobInvitation::parse(text), "the first rank's run.yaml");
  options.host = host_of_rank(access.config, world.rank().value);
  return work_in_job(access, options, {&world, std::move(fabric)}, nullptr, stop_requested);
}

}  // namespace

std::string configuration_digest(const RunConfig& config) {
  RunConfig shared = config;
  shared.out.clear();
  return fmt::format("{:016x}", std::hash<std::string>()(config_text(shared)));
}

WorkerResult run_worker(const WorkerOptions& options, const std::function<bool()>& stop_requested) {
  if (options.transport == "mpi") {
    return run_mpi_worker(options, stop_requested);
  }
  const JobFile job = read_job_file(options.folder);
  const JobAccess access = {.address = job.address, .token = job.token, .config = config_of_run(options.folder)};
  return work_in_job(access, options, {}, nullptr, stop_requested);
}

WorkerResult run_invited_worker(const JobInvitation& invitation, const std::string& version,
                                const std::function<bool()>& stop_requested) {
  const WorkerOptions options = {.folder = invitation.folder,
                                 .resumes = invitation.resumes,
                                 .transport = "socket",
                                 .launch = invitation.launch,
                                 .rank = invitation.rank,
                                 .restarts = invitation.restarts,
                                 .version = version,
                                 .host = invitation.host,
                                 .log_is_output = true};
  return work_in_job(access_of(invitation, "the launcher's run.yaml"), options, {}, nullptr, stop_requested);
}

JobAccess access_of(const JobInvitation& invitation, const std::string& source) {
  JobAccess access;
  access.token = invitation.token;
  apply_config_text(access.config, invitation.config, source);
  const FoundListener found = find_listener(invitation.addresses, Clock::now() + kJoinPatience);
  if (!found.address) {
    throw Error("cannot reach the job's coordinator: " + found.reason);
  }
  access.address = *found.address;
  return access;
}

WorkerResult work_in_job(const JobAccess& job, const WorkerOptions& options, MpiLinks links, RunObserver* show,
                         const std::function<bool()>& stop_requested) {
  MpiWorld* const world = links.world;
  const RunConfig& config = job.config;
  std::optional<SocketListener> listener;
  JoinRequest request;
  if (world != nullptr) {
    request.rank = world->rank();
  } else {
    request.rank = Rank{options.rank};
    // Where this machine reaches the coordinator from, the other workers reach it.
    listener.emplace(job.address.kind == Address::Kind::unix_path
                         ? Address::unix_path(fmt::format("{}.{}", job.address.path, ::getpid()))
                         : Address::tcp(local_host_towards(job.address), 0));
    request.data_address = listener->address().text();
  }
  WorkerActivity activity;
  std::optional<ProcessLog> opened_log;  // these three are used by the member's thread
  ControlEvents events;
  request.version = options.version;
  request.token = job.token;
  request.configuration = configuration_digest(config);
  request.host = options.host.empty() ? this_machine().host : options.host;
  request.tls = tls_of(config);
  request.pid = ::getpid();
  request.role = Role::worker;
  request.launch = options.launch;
  request.on_event = [&events](const MemberEvent& event) { events(event); };
  request.progress = [&activity] { return activity.progress(); };
  Member::Joined joined = Member::join(job.address, std::move(request), Clock::now() + kJoinPatience);
  if (joined.member == nullptr) {
    throw Error("cannot join the job: " + joined.reason);
  }
  Member& member = *joined.member;
  const ProcessLog& log = options.log_is_output
                              ? opened_log.emplace(FileDescriptor(::dup(STDOUT_FILENO)))
                              : opened_log.emplace(worker_log_path(options.folder, member.self().rank.value));
  log.line(fmt::format("{} joined{}", describe(member.self()),
                       options.restarts > 0 ? fmt::format(", restart {}", options.restarts) : ""));
  events.set_log(&log);
  const std::optional<View> view = member.wait_for_view(1, Clock::now() + kJoinPatience);
  if (!view) {
    throw Error("the job did not begin in time");
  }

  WorkerResult result;
  {
    const Rank self = member.self().rank;
    FaultyFabric* faulty = nullptr;
    const std::unique_ptr<Fabric> fabric =
        with_faults(world != nullptr ? std::move(links.fabric) : connect(*view, self, *listener, job), config, faulty);
    events.set_fabric(fabric.get());
    std::vector<Rank> ranks;
    for (const MemberInfo& other : view->members) {
      ranks.push_back(other.rank);
    }
    Group group(*fabric, ranks, static_cast<std::uint32_t>(view->number));
    WorkerObserver observer(member, activity, log, group.position() == 0, show);
    std::optional<WorkerChaos> chaos;
    if (!config.chaos.empty()) {
      chaos.emplace(config, WorkerChaos::Place{.self = self.value,
                                               .fabric = faulty,
                                               .member = &member,
                                               .folder = options.folder,
                                               .restarts = options.restarts,
                                               .note = [&](const std::string& text) { observer.note(text); }});
    }
    const auto stop = [&] { return stop_requested() || events.stop(); };
    try {
      const Team team = {.group = &group,
                         .sharers = share_cores(group, *view, config),
                         .explain = [&](const std::string& seen) { return events.explain(seen); },
                         .takes_over = [&] { return events.first_alive(group.position()); },
                         .activity = &activity,
                         .chaos = chaos ? &*chaos : nullptr,
                         .restarts = options.restarts};
      const RunSummary summary = Trainer::in_team(team, options.folder, options.resumes, config, observer).run(stop);
      result.exit_code = exit_code_of(summary);
      result.summary = summary;
      result.tells = group.position() == 0 || (summary.status == "lost" && team.takes_over());
      log.line(fmt::format("ends: {}{}", summary.status, summary.problem.empty() ? "" : ": " + summary.problem));
      if (result.tells) {
        observer.relay().ended(summary);
      }
      if (result.tells && show != nullptr) {
        for (const Rank rank : events.lost()) {
          show_last_words(*show, options.folder, rank);
        }
      }
      member.leave(result.exit_code == 0, summary.problem.empty() ? summary.status : summary.problem,
                   Clock::now() + kLeavePatience);
    } catch (const std::exception& error) {
      log.line(fmt::format("ends: {}", error.what()));
      if (show == nullptr) {
        observer.relay().note(error.what());
      }
      member.leave(false, error.what(), Clock::now() + kLeavePatience);
      events.set_fabric(nullptr);
      throw;
    }
    events.set_fabric(nullptr);
    if (world != nullptr && result.exit_code == 4) {
      world->leave_without_finalize();
    }
  }
  result.leave_at_once = world != nullptr && !world->finish(Clock::now() + kLeavePatience);
  return result;
}

}  // namespace distbelief
