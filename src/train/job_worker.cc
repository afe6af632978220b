#include "train/job_worker.h"

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <map>
#include <set>

#include "base/error.h"
#include "cluster/job_file.h"
#include "cluster/member.h"
#include "metrics/machine.h"
#include "train/control_events.h"
#include "train/core_share.h"
#include "train/job_hosts.h"
#include "train/job_tls.h"
#include "train/lease_questions.h"
#include "train/process_log.h"
#include "train/worker_observer.h"
#include "transport/mpi/mpi_fabric.h"
#include "transport/socket/local_address.h"
#include "transport/socket/socket_fabric.h"

namespace distbelief {
namespace {

constexpr std::chrono::seconds kJoinPatience{60};
constexpr std::chrono::milliseconds kBetweenLooksForStop{100};
/// The coordinator may be on its way back; when it is lost, this ends earlier.
constexpr std::chrono::seconds kLeavePatience{40};
constexpr std::chrono::seconds kFinishPatience{5};
constexpr std::chrono::seconds kLeadPatience{10};
/// For the view without a member whose links broke: longer than its silence is borne.
constexpr std::chrono::seconds kRegroupPatience{30};

/// Where a member listens: for those it begins the job with, if they talk over sockets, and for those that come later.
struct DataAddresses {
  std::string first = {};
  std::string late = {};
  std::string text() const { return first.empty() ? late : late.empty() ? first : first + " " + late; }
  static DataAddresses parse(const std::string& text) {
    const std::size_t space = text.find(' ');
    return {text.substr(0, space), space == std::string::npos ? text : text.substr(space + 1)};
  }
};

SocketFabricOptions socket_options(const JobAccess& job, std::uint64_t view) {
  SocketFabricOptions options;
  options.token = job.token;
  options.tls = tls_of(job.config);
  options.job = "distbelief";
  options.view = static_cast<std::uint32_t>(view);
  return options;
}

std::unique_ptr<Fabric> connect(const View& view, Rank self, SocketListener& listener, const JobAccess& job) {
  std::vector<Address> addresses;
  for (const MemberInfo& member : view.members) {
    addresses.push_back(Address::parse(DataAddresses::parse(member.data_address).first));
  }
  SocketFabricResult result =
      connect_socket_fabric(self, addresses, listener, socket_options(job, view.number), Clock::now() + kJoinPatience);
  if (result.fabric == nullptr) {
    throw Error("cannot reach the other workers: " + result.reason);
  }
  return std::move(result.fabric);
}

struct SharedCores {
  int sharers = 1;        ///< of what this process may use now
  std::string side = {};  ///< for threads that do not compute: see ServedTeam
};

/// Workers on the machine of this one.
int sharers_of_host(const View& view, Rank self) {
  return static_cast<int>(std::ranges::count_if(view.members, [&](const MemberInfo& member) {
    return member.role == Role::worker && member.host == view.find(self)->host;
  }));
}

/// Shares the cores of this machine out among the members that may use the same ones.
SharedCores share_cores(Group& group, const View& view, const RunConfig& config) {
  std::vector<std::uint64_t> usable(view.members.size());
  const auto self = static_cast<std::size_t>(group.position());
  usable[self] = usable_cores_digest();
  if (!group.all_gather(usable, Clock::now() + kJoinPatience).ok()) {
    return {.sharers = group.size()};  // whoever is lost is noticed and named when training begins
  }
  int index = 0;
  int sharers = 0;
  int servers = 0;
  for (std::size_t i = 0; i < usable.size(); ++i) {
    if (usable[i] != usable[self] || view.members[i].host != view.members[self].host) {
      continue;
    }
    if (view.members[i].role == Role::worker) {
      index += i < self ? 1 : 0;
      ++sharers;
    } else {
      ++servers;
    }
  }
  const bool serves = view.members[self].role == Role::server;
  SharedCores shared = {.sharers = std::max(1, sharers)};
  if (config.bind != "cores" || sharers == 0) {
    return shared;
  }
  const CorePlan plan =
      plan_cores({.workers = sharers, .threads = static_cast<int>(config.threads), .servers = servers});
  const std::string own = serves                 ? plan.spare
                          : plan.workers.empty() ? ""
                                                 : plan.workers[static_cast<std::size_t>(index)];
  if (!own.empty() && bind_process(own)) {
    shared.sharers = 1;
    shared.side = plan.spare.empty() || serves ? "" : own + "," + plan.spare;
  }
  return shared;
}

void show_last_words(RunObserver& show, const std::filesystem::path& folder, std::string_view role, Rank rank) {
  const std::filesystem::path log = process_log_path(folder, role, rank.value);
  show.note(fmt::format("the last lines of {} {} ({}):", role, rank.value, log.string()));
  for (const std::string& line : last_words(log)) {
    show.note(line);
  }
}

int workers_in(const View& view) {
  return static_cast<int>(
      std::ranges::count_if(view.members, [](const MemberInfo& other) { return other.role == Role::worker; }));
}

/// What a server asks about the others, answered from the newest view.
class ServedWatch {
 public:
  ServedWatch(const Member& member, const ControlEvents& events, const View& first) : member_(member), events_(events) {
    for (const MemberInfo& other : first.members) {
      if (other.role == Role::worker) {
        workers_[other.incarnation] = other.rank;
      }
    }
  }
  /// Workers that were there and are not any more, each once.
  std::vector<ServedTeam::LostWorker> newly_lost() {
    std::set<std::uint64_t> here;
    for (const MemberInfo& other : member_.view().members) {
      here.insert(other.incarnation);
    }
    std::vector<ServedTeam::LostWorker> lost;
    for (const auto& [incarnation, rank] : workers_) {
      if (!here.contains(incarnation)) {
        lost.push_back({incarnation, rank});
      }
    }
    for (const ServedTeam::LostWorker& worker : lost) {
      workers_.erase(worker.incarnation);
    }
    return lost;
  }
  int workers_left() const {
    if (events_.coordinator_lost()) {
      return 0;  // nobody will ever tell; links to them are given up
    }
    return workers_in(member_.view());
  }
  std::string names_left() const {
    std::string names;
    for (const MemberInfo& other : member_.view().members) {
      if (other.role == Role::worker) {
        names += (names.empty() ? "" : ", ") + describe(other);
      }
    }
    return names;
  }
  bool given_up() const { return events_.coordinator_lost() || events_.stop(); }
  bool is_given_up() const { return events_.fenced(); }
  bool is_gone(Rank rank) const { return events_.coordinator_lost() || member_.view().find(rank) == nullptr; }

 private:
  const Member& member_;
  const ControlEvents& events_;
  std::map<std::uint64_t, Rank> workers_;  // by incarnation
};

/// Who holds which parameters, where each has two holders.
std::unique_ptr<ServedRoutes> served_routes(const RunConfig& config, const View& view, ControlEvents& events,
                                            const ServedWatch& watch) {
  if (holders_of(config) < 2) {
    return nullptr;
  }
  std::vector<std::string> hosts;
  for (const MemberInfo& other : view.members) {
    if (other.role == Role::server) {
      hosts.push_back(other.host);
    }
  }
  const int workers = workers_in(view);
  return std::make_unique<ServedRoutes>(
      hosts,
      ServedRoutes::Events{.lost =
                               [&events, workers] {
                                 std::vector<int> servers;
                                 for (const ControlEvents::Loss& loss : events.lost()) {
                                   if (loss.member.rank.value >= workers) {
                                     servers.push_back(loss.member.rank.value - workers);
                                   }
                                 }
                                 return servers;
                               },
                           .is_gone = [&watch, workers](int server) { return watch.is_gone(Rank{workers + server}); }});
}

ServedTeam served_team(Member& member, const View& view, Fabric& fabric, LeaseSource& leases, ServedWatch& watch,
                       LeaseQuestions& questions, ServedRoutes* routes, int parts) {
  ServedTeam team;
  team.routes = routes;
  team.parts = parts;
  team.fabric = &fabric;
  team.view = static_cast<std::uint32_t>(view.number);
  team.incarnation = member.self().incarnation;
  team.workers = workers_in(view);
  team.servers = static_cast<int>(view.members.size()) - team.workers;
  team.inside = team.servers == 0;
  if (team.inside) {
    team.servers = team.workers;
  }
  team.leases = &leases;
  team.plan_leases = [&member](const LeaseTable::Options& plan, std::uint64_t answers) {
    member.plan_leases(plan, answers);
  };
  team.lease_question = [&questions] { return questions.take(); };
  team.report_leases = [&member](const std::vector<LeaseReport>& reports, std::uint64_t answers) {
    member.report_leases(reports, answers);
  };
  if (!team.inside) {  // otherwise the parameters of who is lost are lost with it
    team.newly_lost = [&watch] { return watch.newly_lost(); };
  }
  team.fenced = [&member](std::uint64_t incarnation, const std::vector<PushId>& open) {
    std::vector<Member::LeaseProgress> progress;
    for (const PushId& push : open) {
      progress.push_back({push.lease, push.seq});
    }
    member.confirm_fence(incarnation, progress);
  };
  team.workers_left = [&watch] { return watch.workers_left(); };
  team.still_leads = [&member, &watch] {
    (void)member.flush(Clock::now() + kLeadPatience);  // the answer brings what it has missed
    return !watch.is_given_up();
  };
  team.names_left = [&watch] { return watch.names_left(); };
  team.given_up = [&watch] { return watch.given_up(); };
  team.leader_left = [&watch, routes, leader = team.leader()] {
    return routes != nullptr ? !routes->leader() : watch.is_gone(leader);
  };
  return team;
}

ControlEvents::Bond bond_of(const RunConfig& config) {
  if (is_served(config)) {
    return config.servers > 0 ? ControlEvents::Bond::each_link : ControlEvents::Bond::all_or_none;
  }
  return parts_of(config) == 1 ? ControlEvents::Bond::regroups : ControlEvents::Bond::all_or_none;
}

/// What a member of a group that outlives its members asks the control plane.
void let_regroup(Team& team, ControlEvents& events, GrowingFabric& fabric) {
  team.next = [&events](std::uint32_t epoch) -> std::optional<NextTeam> {
    const std::optional<View> view = events.next_view(epoch, Clock::now() + kRegroupPatience);
    if (!view) {
      return std::nullopt;
    }
    NextTeam next = {.epoch = static_cast<std::uint32_t>(view->number), .members = {}};
    for (const MemberInfo& member : view->members) {
      next.members.push_back(member.rank);
    }
    return next;
  };
  team.formed = [&events](std::uint32_t epoch) { events.formed(epoch); };
  team.newest = [&events] { return static_cast<std::uint32_t>(events.newest_with_newcomers()); };
  team.admit = [&events, &fabric, patience = team.patience](const NextTeam& next) -> std::optional<std::uint32_t> {
    std::map<int, Address> peers;
    const std::optional<View> view = events.view(next.epoch);
    for (const MemberInfo& member : view->members) {
      if (const std::string late = DataAddresses::parse(member.data_address).late; !late.empty()) {
        peers.emplace(member.rank.value, Address::parse(late));
      }
    }
    const GrowingFabric::Grown grown = fabric.grow(
        peers, next.epoch, [&events](Rank rank) { return events.is_gone(rank); }, Clock::now() + patience);
    return grown.ok ? std::optional(grown.view) : std::nullopt;
  };
  team.news_of = [&events](Rank rank) -> std::optional<MemberNews> {
    for (const ControlEvents::Loss& loss : events.lost()) {
      if (loss.member.rank == rank) {
        return MemberNews{describe(loss.member), loss.reason};
      }
    }
    const std::optional<MemberInfo> member = events.find(rank);
    return member ? std::optional(MemberNews{describe(*member), ""}) : std::nullopt;
  };
  team.fenced = [&events] { return events.fenced(); };
}

int exit_code_of(const RunSummary& summary) {
  return summary.status == "diverged" ? 3 : summary.status == "lost" ? 4 : 0;
}

/// Rank 0 reads the folder, and tells the others, who may be on machines that do not see it.
WorkerResult run_mpi_worker(WorkerOptions options, const std::function<bool()>& stop_requested) {
  MpiWorld world(Clock::now() + kJoinPatience);
  options.log_is_output = !std::filesystem::exists(options.folder);
  if (!options.log_is_output) {
    const std::string_view role = role_of_rank(config_of_run(options.folder), world.rank().value);
    ProcessLog(process_log_path(options.folder, role, world.rank().value))
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
  shared.threads = 0;  // these two are each process's own, and run.yaml has what the first one chose
  if (!has_hogwild_workers(config)) {
    shared.thread_mode = "auto";
  }
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
  const bool regroups = bond_of(config) == ControlEvents::Bond::regroups;
  if (options.late && !regroups) {
    throw InputError("this job takes no workers in while it runs: it has servers, or a network that is cut");
  }
  const bool on_unix_path = job.address.kind == Address::Kind::unix_path;
  // Where this machine reaches the coordinator from, the other workers reach it.
  const std::string host = on_unix_path ? "127.0.0.1" : local_host_towards(job.address);
  std::optional<SocketListener> listener;
  std::unique_ptr<SocketListener> late_listener;  // has no file, which a killed process would leave behind
  DataAddresses addresses;
  JoinRequest request;
  request.rank = world != nullptr ? world->rank() : Rank{options.late ? -1 : options.rank};
  if (world == nullptr && !options.late) {
    listener.emplace(on_unix_path ? Address::unix_path(fmt::format("{}.{}", job.address.path, ::getpid()))
                                  : Address::tcp(host, 0));
    addresses.first = listener->address().text();
  }
  if (regroups) {
    late_listener = std::make_unique<SocketListener>(Address::tcp(host, 0));
    addresses.late = late_listener->address().text();
  }
  request.data_address = addresses.text();
  WorkerActivity activity;
  std::optional<ProcessLog> opened_log;  // these three are used by the member's thread
  ControlEvents events(bond_of(config), static_cast<int>(parts_of(config)));
  request.version = options.version;
  request.token = job.token;
  request.configuration = configuration_digest(config);
  request.host = options.host.empty() ? this_machine().host : options.host;
  request.tls = tls_of(config);
  request.pid = ::getpid();
  request.role = Role::any;  // its rank says which
  request.launch = options.launch;
  LeaseQuestions questions;
  request.on_event = [&events, &questions](const MemberEvent& event) {
    questions(event);
    events(event);
  };
  request.progress = [&activity] { return activity.progress(); };
  Member::Joined joined = Member::join(job.address, std::move(request), Clock::now() + kJoinPatience);
  if (joined.member == nullptr) {
    throw Error("cannot join the job: " + joined.reason);
  }
  Member& member = *joined.member;
  const ProcessLog& log = options.log_is_output
                              ? opened_log.emplace(FileDescriptor(::dup(STDOUT_FILENO)))
                              : opened_log.emplace(process_log_path(options.folder, role_name(member.self().role),
                                                                    member.self().rank.value));
  log.line(fmt::format("{} joined{}", describe(member.self()),
                       options.restarts > 0 ? fmt::format(", restart {}", options.restarts) : ""));
  events.set_log(&log);
  std::optional<View> view;
  for (const Clock::time_point deadline = Clock::now() + kJoinPatience; !view;) {
    view = member.wait_for_view(1, std::min(deadline, Clock::now() + kBetweenLooksForStop));
    if (view && view->find(member.self().rank) == nullptr) {
      view.reset();  // of before it came
    }
    if (!view && (events.stop() || events.coordinator_lost() || stop_requested())) {
      member.leave(true, "stopped before training began", Clock::now() + kLeavePatience);
      if (world != nullptr) {
        world->leave_without_finalize();
      }
      return {.exit_code = 0, .leave_at_once = world != nullptr};
    }
    if (!view && Clock::now() >= deadline) {
      throw Error("the job did not begin in time");
    }
  }

  WorkerResult result;
  {
    const Rank self = member.self().rank;
    FaultyFabric* faulty = nullptr;
    GrowingFabric* growing = nullptr;
    std::unique_ptr<Fabric> bare = options.late       ? nullptr
                                   : world != nullptr ? std::move(links.fabric)
                                                      : connect(*view, self, *listener, job);
    if (regroups) {
      auto made = make_growing_fabric(self, std::move(bare), std::move(late_listener), socket_options(job, view->number));
      growing = made.get();
      bare = std::move(made);
    }
    const std::unique_ptr<Fabric> fabric = with_lock(with_faults(std::move(bare), config, faulty), config);
    events.set_fabric(fabric.get());
    listener.reset();  // all are connected, and strangers are not waited for
    std::vector<Rank> ranks;
    for (const MemberInfo& other : view->members) {
      ranks.push_back(other.rank);
    }
    Group group(*fabric, ranks, static_cast<std::uint32_t>(view->number));
    CoordinatorLeases leases(member);
    ServedWatch watch(member, events, *view);
    const std::unique_ptr<ServedRoutes> routes = served_routes(config, *view, events, watch);
    ServedTeam served =
        served_team(member, *view, *fabric, leases, watch, questions, routes.get(), static_cast<int>(parts_of(config)));
    const bool is_served_job = is_served(config);
    const auto leads = [&] {
      return routes != nullptr ? !served.is_worker() && routes->now().leader() == served.number()
             : is_served_job   ? served.leads()
                               : group.position() == 0;
    };
    WorkerObserver observer(member, activity, log, leads, show);
    std::optional<WorkerChaos> chaos;
    if (!config.chaos.empty()) {
      chaos.emplace(config, WorkerChaos::Place{.self = self.value,
                                               .fabric = faulty,
                                               .member = &member,
                                               .folder = options.folder,
                                               .restarts = options.restarts,
                                               .note = [&](const std::string& text) { observer.note(text); }});
    }
    const auto stop = [&] { return stop_requested() || events.stop() || (is_served_job && events.coordinator_lost()); };
    try {
      const SharedCores cores = options.late ? SharedCores{.sharers = sharers_of_host(*view, self)}
                                             : share_cores(group, *view, config);
      if (!cores.side.empty()) {
        served.side_thread_begins = [cores] { bind_thread(cores.side); };
      }
      Team team = {.group = is_served_job ? nullptr : &group,
                   .sharers = cores.sharers,
                   .explain = [&](const std::string& seen) { return events.explain(seen); },
                   .takes_over = [&] { return events.first_alive(self); },
                   .activity = &activity,
                   .chaos = chaos ? &*chaos : nullptr,
                   .restarts = options.restarts,
                   .served = is_served_job ? &served : nullptr};
      team.late = options.late;
      if (growing != nullptr) {
        let_regroup(team, events, *growing);
      }
      Trainer trainer = Trainer::in_team(team, options.folder, options.resumes, config, observer);
      const RunSummary summary = trainer.run(stop);
      result.exit_code = exit_code_of(summary);
      result.summary = summary;
      result.tells = !events.fenced() && ((is_served_job ? leads() : trainer.leads()) ||
                                          (!is_served_job && summary.status == "lost" && team.takes_over()));
      log.line(fmt::format("ends: {}{}", summary.status, summary.problem.empty() ? "" : ": " + summary.problem));
      if (result.tells && !observer.has_ended()) {
        observer.relay().ended(summary);
      }
      if (result.tells && show != nullptr) {
        for (const ControlEvents::Loss& loss : events.lost()) {
          show_last_words(*show, options.folder, role_name(loss.member.role), loss.member.rank);
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
    if (world != nullptr && (result.exit_code == 4 || !events.lost().empty())) {
      world->leave_without_finalize();
    }
  }
  result.leave_at_once = world != nullptr && !world->finish(Clock::now() + kFinishPatience);
  return result;
}

}  // namespace distbelief
