#include "train/job_coordinator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "base/error.h"
#include "cluster/etcd_guard.h"
#include "cluster/etcd_store.h"
#include "cluster/job_file.h"
#include "train/core_share.h"
#include "train/job_hosts.h"
#include "train/job_invitation.h"
#include "train/job_store.h"
#include "train/job_tls.h"
#include "train/job_worker.h"
#include "train/part_epochs.h"

namespace distbelief {
namespace {

using Claim = EtcdStore::Claim;

constexpr std::chrono::milliseconds kBetweenLooksAtSignals{100};
constexpr std::chrono::milliseconds kBetweenLooksAtLeader{500};
/// To become the coordinator for the first time: longer than the lease of an earlier one lasts.
constexpr std::chrono::seconds kFirstPatience{20};
/// How long members of a job with a store wait for a coordinator.
constexpr std::chrono::seconds kReturnLimit{60};
/// Of a job, on a machine with few cores, and with more.
constexpr int kProcessesOfAJob = 64;
constexpr int kProcessesPerCore = 8;

/// What somebody must know who joins from where the folder is not to be seen, but for the token.
std::string invitation_text(const RunConfig& config, const std::filesystem::path& folder) {
  return JobInvitation{
      .folder = folder, .working_folder = std::filesystem::current_path(), .config = config_text(config)}
      .text();
}

/// Until the job has ended or this coordinator is deposed.
JobResult coordinate_once(const CoordinatorOptions& options, const std::function<bool()>& stop_requested) {
  Coordinator coordinator(options);
  bool stopping = false;
  for (;;) {
    if (auto result = coordinator.wait(Clock::now() + kBetweenLooksAtSignals)) {
      return *result;
    }
    if (!stopping && stop_requested()) {
      stopping = true;
      coordinator.stop("the coordinator was asked to stop");
    }
  }
}

/// The same with etcd, and again under the next term after each time that etcd could not be reached; deposed: another
/// coordinator has taken over.
JobResult coordinate_with_store(CoordinatorOptions options, const RunConfig& config, Claim claim,
                                const std::function<bool()>& stop_requested) {
  for (;;) {
    const bool begins = claim.kind == Claim::Kind::first;
    const auto patience = begins ? kFirstPatience : kReturnLimit;
    EtcdStore::Opened opened = EtcdStore::open(*store_of(config), tls_of(config), claim, Clock::now() + patience);
    if (opened.another_leads) {
      return {.reason = opened.reason, .deposed = true};
    }
    if (opened.store == nullptr) {
      throw InputError(opened.reason);
    }
    claim = {.kind = Claim::Kind::dead, .term = opened.store->begin_term()};
    options.store = std::move(opened.store);
    options.comes_back = !begins;
    if (!begins || options.store->write(etcd_keys::kConfig, config_text(config), Store::Outlives::the_machine)) {
      const JobResult result = coordinate_once(options, stop_requested);
      if (!result.deposed) {
        return result;
      }
      options.log(fmt::format("stops: {}", result.reason));
    }
    options.store.reset();  // ends its signs of life
  }
}

/// "coordinator of term 3 at tcp:alpha:4000".
std::string leader_name(const EtcdGuard::Sight& sight) {
  return fmt::format("coordinator of term {}{}", sight.term, sight.leader ? " at " + sight.leader->address.text() : "");
}

/// Says what has changed.
class GuardReport {
 public:
  explicit GuardReport(const GuardTask& task) : task_(task) {}
  void operator()(const EtcdGuard::Sight& sight) {
    using Kind = EtcdGuard::Sight::Kind;
    std::string line;
    switch (sight.kind) {
      case Kind::unreachable:
        line = "cannot reach the store: " + sight.reason;
        break;
      case Kind::no_job:
        line = fmt::format("waits for a job at {}", task_.store);
        break;
      case Kind::watched:
        line = fmt::format("guards the {}", leader_name(sight));
        break;
      case Kind::unaware:
        line = fmt::format("found the {}, which has not heard of this guard yet", leader_name(sight));
        break;
      case Kind::lost:
        line = fmt::format("the {} is gone, and had not heard of this guard", leader_name(sight));
        break;
      case Kind::vacant:
        line = fmt::format("the {} is gone", leader_name(sight));
        break;
      case Kind::ended:
        return;
    }
    if (line != last_) {
      task_.log(line);
      last_ = line;
    }
  }

 private:
  const GuardTask& task_;
  std::string last_;
};

/// Until the leader's place is vacant, the job is over, or nothing can be done any more.
EtcdGuard::Sight watch_leader(const GuardTask& task, const std::optional<TlsOptions>& tls) {
  EtcdGuard guard(StoreUrl::parse(task.store), tls);
  GuardReport report(task);
  std::optional<Clock::time_point> lost_since;
  for (;;) {
    const EtcdGuard::Sight sight = guard.look();
    report(sight);
    using Kind = EtcdGuard::Sight::Kind;
    lost_since = sight.kind == Kind::lost ? std::optional(lost_since.value_or(Clock::now())) : std::nullopt;
    const bool hopeless = lost_since && Clock::now() - *lost_since > kReturnLimit;
    if (sight.kind == Kind::vacant || sight.kind == Kind::ended || hopeless || task.stop_requested()) {
      return sight;
    }
    std::this_thread::sleep_for(kBetweenLooksAtLeader);
  }
}

}  // namespace

JobRules rules_of_job(const RunConfig& config, const std::string& version) {
  JobRules rules;
  rules.version = version;
  rules.configuration = configuration_digest(config);
  rules.workers = static_cast<int>(config.workers);
  rules.servers = static_cast<int>(processes_of(config) - config.workers);
  rules.workers_serve = rules.servers == 0 && (holders_of(config) > 1 || parameters_may_move(config));
  rules.parts = static_cast<int>(parts_of(config));
  rules.workers_may_leave = workers_may_leave(config);
  rules.servers_may_change = servers_may_change(config);
  rules.servers_have_copies = config.replication > 1 && parameters_may_move(config);
  rules.takes_late_members = takes_newcomers(config);
  rules.most_views = rules.workers_hold_parts() ? kMostPartViews : 0;
  rules.restarts = replaces_workers(config) && config.hosts.empty() ? static_cast<int>(config.restarts) : 0;
  const ChaosScript chaos = parse_chaos(config.chaos);
  rules.rendezvous = chaos.rendezvous();
  for (const ChaosEvent& event : chaos.events) {
    if (event.subject.kind == ChaosSubject::Kind::coordinator) {
      rules.deaths.push_back(event.text);
    }
  }
  rules.stall_limit = std::chrono::milliseconds(std::llround(config.stall_after * 1000));
  rules.straggler_limit = std::chrono::milliseconds(std::llround(config.straggler_after * 1000));
  if (!config.store.empty()) {
    rules.return_limit = kReturnLimit;  // somebody elsewhere may have to find out first
  }
  rules.look_for_process = look_for;
  return rules;
}

JobResult coordinate_job(const CoordinatorTask& task) {
  const RunConfig config = config_of_run(task.folder);
  const CoordinatorPlace place = coordinator_place(config, task.several_hosts);
  CoordinatorOptions options;
  options.rules = rules_of_job(config, task.version);
  options.rules.has_launcher = task.has_launcher;
  options.rules.standbys = task.has_launcher ? static_cast<int>(config.standby) : 0;
  options.rules.restarts_before = task.restarts;
  options.rules.launcher_starts_workers = task.has_launcher && config.hosts.empty();
  options.rules.most_processes = std::max(kProcessesOfAJob, kProcessesPerCore * usable_cores());
  options.rules.invitation = invitation_text(config, std::filesystem::absolute(task.folder));
  options.listen = place.listen;
  options.advertised_hosts = place.hosts;
  options.tls = tls_of(config);
  options.run_folder = task.folder;
  options.comes_back = task.again;
  options.log = task.log;
  if (config.store.empty()) {
    return coordinate_once(options, task.stop_requested);
  }
  Claim claim;
  try {
    claim = task.again ? Claim{Claim::Kind::dead, read_job_file(task.folder).term} : Claim();
  } catch (const FileError&) {
    // it had not got so far as to be found
  }
  return coordinate_with_store(options, config, claim, task.stop_requested);
}

JobResult guard_job(const GuardTask& task) {
  const std::optional<TlsOptions> tls = tls_of(task.place);
  for (;;) {
    const EtcdGuard::Sight sight = watch_leader(task, tls);
    if (sight.kind == EtcdGuard::Sight::Kind::ended) {
      return {.succeeded = true, .reason = "the job has ended"};
    }
    if (sight.kind != EtcdGuard::Sight::Kind::vacant) {
      return {.reason = task.stop_requested() ? "told to stop" : "no coordinator came back", .deposed = true};
    }
    RunConfig config;
    apply_config_text(config, sight.config, "run.yaml of the store");
    config.store = task.store;
    config.listen = task.place.listen;
    config.advertise = task.place.advertise;
    if (!task.place.tls_cert.empty()) {
      config.tls_cert = task.place.tls_cert;
      config.tls_key = task.place.tls_key;
      config.tls_ca = task.place.tls_ca;
    }
    const CoordinatorPlace place = coordinator_place(config, true);
    CoordinatorOptions options;
    options.rules = rules_of_job(config, task.version);
    options.rules.outlives_launcher = true;
    options.rules.invitation = invitation_text(config, config.out);
    options.listen = place.listen;
    options.advertised_hosts = place.hosts;
    options.tls = tls_of(config);
    options.elsewhere = true;
    options.log = task.log;
    const JobResult result =
        coordinate_with_store(options, config, {Claim::Kind::guarded, sight.term}, task.stop_requested);
    if (!result.deposed) {
      return result;
    }
    task.log(result.reason);  // and is a guard again
  }
}

}  // namespace distbelief
