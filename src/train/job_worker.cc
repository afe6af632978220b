#include "train/job_worker.h"

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <map>
#include <set>
#include <thread>

#include "base/error.h"
#include "cluster/job_file.h"
#include "cluster/member.h"
#include "train/control_events.h"
#include "train/core_share.h"
#include "train/job_hosts.h"
#include "train/job_store.h"
#include "train/job_tls.h"
#include "train/join_request.h"
#include "train/lease_questions.h"
#include "train/leave_wish.h"
#include "train/mpi_helper.h"
#include "train/newcomers.h"
#include "train/peer_facts.h"
#include "train/process_log.h"
#include "train/served_control.h"
#include "train/shared_cores.h"
#include "train/team_run.h"
#include "train/worker_observer.h"
#include "transport/socket/local_address.h"
#include "transport/socket/socket_fabric.h"

namespace distbelief {
namespace {

constexpr std::chrono::seconds kJoinPatience{60};
constexpr std::chrono::milliseconds kBetweenLooksForStop{100};
/// The coordinator may be on its way back; when it is lost, this ends earlier.
constexpr std::chrono::seconds kLeavePatience{40};
constexpr std::chrono::seconds kFinishPatience{5};
constexpr std::chrono::seconds kMemoryPatience{2};
constexpr std::chrono::milliseconds kBetweenLooksAtMemory{10};
/// For the view without a member whose links broke: longer than its silence is borne.
constexpr std::chrono::seconds kRegroupPatience{30};
/// The same where another takes its place: longer than two of them are waited for.
constexpr std::chrono::seconds kReplacementPatience{90};

SocketFabricOptions socket_options(const JobAccess& job, std::uint64_t view) {
  SocketFabricOptions options;
  options.token = job.token;
  options.tls = tls_of(job.config);
  options.job = "distbelief";
  options.view = static_cast<std::uint32_t>(view);
  return options;
}

/// Who is lost meanwhile is as one that is lost afterwards: training finds out.
std::unique_ptr<Fabric> connect(const View& view, Rank self, SocketListener& listener, const JobAccess& job,
                                const std::function<bool(Rank)>& given_up) {
  std::vector<Address> addresses(static_cast<std::size_t>(processes_of(job.config)));
  for (const MemberInfo& member : view.members) {
    addresses.at(static_cast<std::size_t>(member.rank.value)) = Address::parse(PeerFacts::of(member).first);
  }
  SocketFabricResult result = connect_socket_fabric(self, addresses, listener, socket_options(job, view.number),
                                                    Clock::now() + kJoinPatience, given_up);
  if (result.fabric == nullptr) {
    throw Error("cannot reach the other workers: " + result.reason);
  }
  return std::move(result.fabric);
}

void show_last_words(RunObserver& show, const std::filesystem::path& folder, std::string_view role, Rank rank) {
  const std::filesystem::path log = process_log_path(folder, role, rank.value);
  const std::vector<std::string> words = last_words(log);
  if (!words.empty()) {
    show.note(fmt::format("the last words of {} {} ({}):", role, rank.value, log.string()));
  }
  for (const std::string& line : words) {
    show.note(line);
  }
}

ControlEvents::Bond bond_of(const RunConfig& config) {
  if (is_served(config)) {
    const bool survives = config.servers > 0 || holders_of(config) > 1 || parameters_may_move(config);
    return survives ? ControlEvents::Bond::each_link : ControlEvents::Bond::all_or_none;
  }
  return ControlEvents::Bond::regroups;
}

/// What a member of a group that outlives its members asks the control plane.
void let_regroup(Team& team, ControlEvents& events, const RunConfig& config) {
  const std::chrono::seconds patience = workers_hold_parts(config) ? kReplacementPatience : kRegroupPatience;
  team.next = [&events, patience](std::uint32_t epoch) -> std::optional<NextTeam> {
    const std::optional<View> view = events.next_view(epoch, Clock::now() + patience);
    if (!view) {
      return std::nullopt;
    }
    NextTeam next = {.epoch = static_cast<std::uint32_t>(view->number),
                     .members = {},
                     .leaving = view->leaving,
                     .most_workers = view->most_workers};
    for (const MemberInfo& member : view->members) {
      next.members.push_back(member.rank);
    }
    return next;
  };
  team.formed = [&events](std::uint32_t epoch) { events.formed(epoch); };
  if (!workers_hold_parts(config)) {
    team.leaving = [&events] { return events.leaves(); };
  }
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
  if (takes_newcomers(config) || workers_hold_parts(config)) {
    team.newest = [&events] { return static_cast<std::uint32_t>(events.newest_with_changes()); };
  }
}

/// The links of such a member to others that come. `locked`: around `fabric`, or null.
void let_grow(Team& team, ControlEvents& events, GrowingFabric& fabric, LockedFabric* locked) {
  team.admit = [&events, &fabric, locked,
                patience = team.patience](const NextTeam& next) -> std::optional<std::uint32_t> {
    std::map<int, Address> peers;
    const std::optional<View> view = events.view(next.epoch);
    for (const MemberInfo& member : view->members) {
      if (const std::string late = PeerFacts::of(member).late; !late.empty()) {
        peers.emplace(member.rank.value, Address::parse(late));
      }
    }
    const auto grow = [&] {
      return fabric.grow(
          peers, next.epoch, [&events](Rank rank) { return events.is_gone(rank); }, Clock::now() + patience);
    };
    // A thread that sums gradients may still find out that its group is over.
    const GrowingFabric::Grown grown = locked == nullptr ? grow() : locked->alone(grow);
    return grown.ok ? std::optional(grown.view) : std::nullopt;
  };
}

int exit_code_of(const RunSummary& summary) {
  return summary.status == "diverged" ? 3 : summary.status == "lost" ? 4 : 0;
}

/// For processes that the launcher starts: the job was there, so if there is none any more it has ended, which is no
/// input that was bad.
template <typename Find>
auto in_begun_job(const Find& find) {
  try {
    return find();
  } catch (const FileError& error) {
    throw Error(fmt::format("the job ended before this process joined it: {}", error.what()));
  }
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
      const JobFile job = in_begun_job([&] { return read_job_file(options.folder); });
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
    return {.exit_code = 1, .leave_at_once = true};  // the first rank's may be another, which mpirun hands on
  }
  const JobAccess access = access_of(JobInvitation::parse(text), "the first rank's run.yaml");
  if (const std::vector<JobHost> hosts = hosts_of_ranks(access.config, true); !hosts.empty()) {
    options.host = hosts.at(static_cast<std::size_t>(world.rank().value)).name;
  }
  bound_patience_of_mpi_helper();
  return work_in_job(access, options, {&world, std::move(fabric)}, nullptr, stop_requested);
}

/// With what was measured before this process came.
RunConfig as_known(RunConfig config, const std::string& shares, bool late) {
  if (late && !shares.empty()) {
    config.shares = shares;
  }
  return config;
}

}  // namespace

std::string configuration_digest(const RunConfig& config) {
  RunConfig shared = config;
  shared.out.clear();
  shared.tls_cert.clear();  // these three: who has certificates of another authority does not come so far
  shared.tls_key.clear();
  shared.tls_ca.clear();
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
  if (options.late) {
    const JobAccess access = in_begun_job([&] { return access_to_running(options.folder, options.version); });
    return join_late(access, options, stop_requested);
  }
  const RunConfig config = config_of_run(options.folder);
  const JobFile job = in_begun_job([&] { return running_job(options.folder, config); });
  const JobAccess access = {.address = job.address, .token = job.token, .config = config};
  return work_in_job(access, options, {}, nullptr, stop_requested);
}

WorkerResult run_invited_worker(const JobInvitation& invitation, const std::string& version,
                                const std::function<bool()>& stop_requested,
                                const std::function<bool()>& leave_requested) {
  const WorkerOptions options = {.folder = invitation.folder,
                                 .resumes = invitation.resumes,
                                 .transport = "socket",
                                 .launch = invitation.launch,
                                 .rank = invitation.rank,
                                 .restarts = invitation.restarts,
                                 .version = version,
                                 .host = invitation.host,
                                 .log_is_output = true,
                                 .leave_requested = leave_requested};
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
  WorkerResult result = work_once(job, options, std::move(links), show, stop_requested);
  return result.comes_again ? work_again(job, options, std::move(result), show, stop_requested) : result;
}

WorkerResult work_once(const JobAccess& job, const WorkerOptions& options, MpiLinks links, RunObserver* show,
                       const std::function<bool()>& stop_requested) {
  MpiWorld* const world = links.world;
  const RunConfig& config = job.config;
  const bool regroups = bond_of(config) == ControlEvents::Bond::regroups;
  const bool grows = takes_workers(config) || servers_may_change(config);
  if (options.late && !options.as_server && !takes_workers(config)) {
    throw InputError("this job takes no workers in while it runs");
  }
  if (options.as_server && !servers_may_change(config)) {
    throw InputError("the servers of this job stay as they are");
  }
  const bool on_unix_path = job.address.kind == Address::Kind::unix_path;
  // Where this machine reaches the coordinator from, the other workers reach it.
  const std::string host = on_unix_path ? "127.0.0.1" : local_host_towards(job.address);
  std::optional<SocketListener> listener;
  std::unique_ptr<SocketListener> late_listener;  // has no file, which a killed process would leave behind
  PeerFacts facts = {.cores = fmt::format("{:016x}", usable_cores_digest())};
  const Role wanted = options.as_server ? Role::server : Role::any;  // its rank says which
  JoinRequest request = join_request(config, options.version, job.token, wanted);
  request.rank = world != nullptr ? world->rank() : Rank{options.rank};
  if (world == nullptr && !options.late) {
    listener.emplace(on_unix_path ? Address::unix_path(fmt::format("{}.{}", job.address.path, ::getpid()))
                                  : Address::tcp(host, 0));
    facts.first = listener->address().text();
  }
  if (grows) {
    late_listener = std::make_unique<SocketListener>(Address::tcp(host, 0));
    facts.late = late_listener->address().text();
  }
  request.facts = facts.text();
  WorkerActivity activity;
  std::optional<ProcessLog> opened_log;  // these three are used by the member's thread
  ControlEvents events(bond_of(config), static_cast<int>(parts_of(config)), options.late);
  request.configuration = configuration_digest(config);
  request.host = options.host.empty() ? request.host : options.host;
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
  const auto asked_to_leave = [&] { return options.leave_requested && options.leave_requested(); };
  const ServedLinkRule link_rule = {.inside = config.servers == 0,
                                    .parts = copies_come_whole(config) ? static_cast<int>(parts_of(config)) : 1};
  std::optional<View> view;
  std::uint64_t seen = 0;
  for (const Clock::time_point deadline = Clock::now() + kJoinPatience; !view;) {
    view = options.late ? member.wait_for_view(seen + 1, std::min(deadline, Clock::now() + kBetweenLooksForStop))
                        : events.first_view(std::min(deadline, Clock::now() + kBetweenLooksForStop));
    if (view && (view->find(member.self().rank) == nullptr || !link_rule.is_ready(*view, member.self()))) {
      seen = view->number;  // of before it came, or before others did
      view.reset();
    }
    if (!view &&
        (events.stop() || events.leaves() || events.coordinator_lost() || stop_requested() || asked_to_leave())) {
      member.leave(true, kNeverBegan, Clock::now() + kLeavePatience);
      if (world != nullptr) {
        world->leave_without_finalize();
      }
      return {.exit_code = 0, .leave_at_once = world != nullptr, .comes_again = events.comes_again()};
    }
    if (!view && Clock::now() >= deadline) {
      throw Error("the job did not begin in time");
    }
  }
  if (!options.late && view->number != 1) {  // who was to be met in the first is not told any more
    member.leave(false, "missed the job's beginning", Clock::now() + kLeavePatience);
    throw Error("missed the job's beginning: the coordinator died at that moment");
  }

  WorkerResult result;
  {
    const Rank self = member.self().rank;
    MpiFabric* const mpi = links.fabric.get();
    FaultyFabric* faulty = nullptr;
    LockedFabric* locked = nullptr;
    GrowingFabric* growing = nullptr;
    const auto given_up = [&](Rank rank) { return events.is_gone(rank); };
    std::unique_ptr<Fabric> bare = options.late       ? nullptr
                                   : world != nullptr ? std::move(links.fabric)
                                                      : connect(*view, self, *listener, job, given_up);
    if (grows) {
      auto made =
          make_growing_fabric(self, std::move(bare), std::move(late_listener), socket_options(job, view->number));
      growing = made.get();
      bare = std::move(made);
    }
    const std::unique_ptr<Fabric> fabric = with_lock(with_faults(std::move(bare), config, faulty), config, locked);
    events.set_fabric(fabric.get());
    const auto forget_fabric = [&events](Fabric* /*known*/) { events.set_fabric(nullptr); };
    const std::unique_ptr<Fabric, decltype(forget_fabric)> known(fabric.get(), forget_fabric);
    listener.reset();  // all are connected, and strangers are not waited for
    std::vector<Rank> ranks;
    for (const MemberInfo& other : view->members) {
      ranks.push_back(other.rank);
    }
    Group group(*fabric, ranks, static_cast<std::uint32_t>(view->number));
    CoordinatorLeases leases(member);
    ServedWatch watch(member, events, *view);
    const bool is_served_job = is_served(config);
    const ServedFounders founders = founders_of(events, *view);
    const std::unique_ptr<ServedRoutes> routes = served_routes(config, founders, events, watch);
    const Role role = member.self().role;
    if (options.late && is_served_job &&
        !meet_those_that_are_there(*growing, events, *view, member.self(), link_rule, Clock::now() + kJoinPatience)) {
      if (events.comes_again()) {
        return {.exit_code = 4, .comes_again = true};
      }
      throw Error("cannot reach the job's servers");
    }
    std::optional<Newcomers> newcomers;
    if (is_served_job && growing != nullptr) {
      newcomers.emplace(*growing, locked, events, *view, member.self(), link_rule);
    }
    ServedTeam served = served_team({.member = member,
                                     .watch = watch,
                                     .leases = leases,
                                     .questions = questions,
                                     .view = *view,
                                     .late = options.late,
                                     .servers_may_change = parameters_may_move(config),
                                     .shelves = static_cast<int>(config.shelves),
                                     .routes = routes.get(),
                                     .newcomers = newcomers ? &*newcomers : nullptr,
                                     .link_rule = link_rule},
                                    founders, *fabric, static_cast<int>(parts_of(config)));
    const auto leads = [&] {
      return routes != nullptr ? served.is_server() && routes->now().leader() == served.number()
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
    // The others have to agree, or to take over what a server holds; elsewhere it is this worker's end, or that of all.
    const bool hands_over = is_served_job && served.servers_may_change && served.is_server();
    std::optional<LeaveWish> wish;
    if (regroups || hands_over) {
      wish.emplace(member, asked_to_leave, [&] {
        return events.stop() || events.leaves() || (hands_over && routes->now().leaves(served.number()));
      });
    }
    const auto stop = [&] {
      const auto is_of_no_use = [&] {
        const ServedTeam::WorkersLeft left = watch.workers_left();
        return left.incarnations.empty() && left.awaited == 0;
      };
      return stop_requested() || events.stop() || (is_served_job && events.coordinator_lost()) ||
             (wish && (role != Role::server || !is_of_no_use()) ? wish->is_in_vain() : asked_to_leave());
    };
    try {
      const SharedCores cores = share_cores(*view, self, config, options.late);
      if (!cores.side.empty()) {
        served.side_thread_begins = [cores] { bind_thread(cores.side); };
      }
      Team team = {.group = is_served_job ? nullptr : &group,
                   .sharers = cores.sharers,
                   .explain = [&](const std::string& what) { return events.explain(what); },
                   .takes_over = [&] { return events.first_alive(self); },
                   .activity = &activity,
                   .chaos = chaos ? &*chaos : nullptr,
                   .restarts = options.restarts,
                   .served = is_served_job ? &served : nullptr};
      team.late = options.late;
      if (locked != nullptr && !is_served_job) {
        team.share_links = [locked](bool several) { locked->set_several(several); };
      }
      if (regroups) {
        let_regroup(team, events, config);
      }
      if (regroups && growing != nullptr) {
        let_grow(team, events, *growing, locked);
      }
      const auto [summary, tells] =
          train_in_team(team, options.folder, options.resumes, as_known(config, member.shares(), options.late),
                        observer, stop, options.opened);
      wish.reset();  // nothing is said after the last word
      result.exit_code = exit_code_of(summary);
      result.summary = summary;
      const bool stopped_alone = is_served_job && events.told_to_leave() && summary.status == "interrupted";
      result.left = summary.status == "left" || stopped_alone;
      result.comes_again = events.comes_again();
      result.tells =
          !events.fenced() && !result.left &&
          ((is_served_job ? leads() : tells) || (!is_served_job && summary.status == "lost" && team.takes_over()));
      result.end = stopped_alone               ? "left: its samples go to others"
                   : result.left && hands_over ? "left: others have what it held"
                   : result.left               ? fmt::format("left after step {}", summary.steps)
                   : summary.problem.empty()   ? summary.status
                                               : summary.problem;
      log.line(fmt::format("ends: {}{}", result.left ? result.end : summary.status,
                           summary.problem.empty() ? "" : ": " + summary.problem));
      if (result.tells && !observer.has_ended()) {
        observer.relay().ended(summary);
      }
      if (result.tells && show != nullptr) {
        for (const ControlEvents::Loss& loss : events.lost()) {
          show_last_words(*show, options.folder, role_name(loss.member.role), loss.member.rank);
        }
      }
      member.leave(result.exit_code == 0, result.end, Clock::now() + kLeavePatience);
    } catch (const std::exception& error) {
      wish.reset();
      log.line(fmt::format("ends: {}", error.what()));
      if (show == nullptr) {
        observer.relay().note(error.what());
      }
      member.leave(false, error.what(), Clock::now() + kLeavePatience, exit_code_of(error) == kBadInputCode);
      if (!events.comes_again()) {
        throw;
      }
      result = {.exit_code = 4, .comes_again = true};
    }
    // What MPI may still read is not to become anything else: then this process cannot go on.
    const Clock::time_point safe_by = Clock::now() + kMemoryPatience;
    while (result.comes_again && mpi != nullptr && mpi->memory_unsafe()) {
      result.comes_again = Clock::now() < safe_by;
      std::this_thread::sleep_for(kBetweenLooksAtMemory);
    }
    if (world != nullptr && (result.exit_code == 4 || result.left || !events.lost().empty() || events.somebody_went() ||
                             std::ranges::any_of(result.summary.events, [](const TeamEvent& event) {
                               return event.what == TeamEvent::What::left;
                             }))) {
      world->leave_without_finalize();
    }
  }
  result.leave_at_once = world != nullptr && !world->finish(Clock::now() + kFinishPatience);
  return result;
}

}  // namespace distbelief
