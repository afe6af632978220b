// What a configuration means for the job, and which ones mean nothing.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>

#include "base/error.h"
#include "base/split.h"
#include "cluster/chaos_random.h"
#include "cluster/chaos_script.h"
#include "config/run_config.h"

namespace distbelief {

bool is_of_one_process(std::string_view algorithm) { return algorithm == "local" || algorithm == "hogwild"; }

bool is_served(const RunConfig& config) {
  return config.algorithm == "async" || config.algorithm == "downpour" || config.algorithm == "softsync" ||
         is_sandblaster(config) || (config.algorithm == "sync" && config.backup_workers > 0);
}

bool is_sandblaster(const RunConfig& config) { return config.algorithm == "sandblaster"; }

std::int64_t processes_of(const RunConfig& config) { return config.workers + (is_served(config) ? config.servers : 0); }

std::string_view role_of_rank(const RunConfig& config, int rank) { return rank < config.workers ? "worker" : "server"; }

bool is_synchronous(const RunConfig& config) {
  return config.algorithm == "sync" ||
         (config.algorithm != "averaging" && config.algorithm != "gossip" && !is_served(config));
}

bool has_hogwild_workers(const RunConfig& config) { return config.thread_mode == "hogwild"; }

std::int64_t parts_of(const RunConfig& config) {
  return config.partition > 0 ? config.partition
                              : std::max<std::int64_t>(1, config.stages) * std::max<std::int64_t>(1, config.tensor);
}

namespace {

/// Servers, or the workers that have them inside.
std::int64_t servers_of(const RunConfig& config) { return config.servers > 0 ? config.servers : config.workers; }

/// Whether what a server holds can be with another one: there are tags for so many shelves.
bool has_shelves(const RunConfig& config) {
  constexpr std::int64_t kMostServers = 60;
  return is_served(config) && servers_of(config) * parts_of(config) <= kMostServers && config.transport != "threads";
}

}  // namespace

std::int64_t holders_of(const RunConfig& config) {
  return has_shelves(config) && servers_of(config) > 1 ? config.replication : 1;
}

bool parameters_may_move(const RunConfig& config) { return has_shelves(config); }

bool servers_may_change(const RunConfig& config) { return config.servers > 0 && parameters_may_move(config); }

std::string why_servers_stay(const RunConfig& config) {
  return !is_served(config)    ? fmt::format("--algorithm {} has no servers", config.algorithm)
         : config.servers == 0 ? "servers are inside the workers (--servers 0): join as a worker"
                               : fmt::format("the servers of a job with {} stay as they are", config.servers);
}

std::int64_t replicas_of(const RunConfig& config) { return config.workers / parts_of(config); }

bool workers_may_leave(const RunConfig& config) {
  return takes_newcomers(config) || (is_served(config) && config.servers > 0);
}

bool takes_newcomers(const RunConfig& config) {
  return !is_of_one_process(config.algorithm) && parts_of(config) == 1 &&
         (!is_served(config) || config.servers > 0 || parameters_may_move(config));
}

bool workers_hold_parts(const RunConfig& config) {
  return !is_of_one_process(config.algorithm) && parts_of(config) > 1 && !is_served(config);
}

bool copies_come_whole(const RunConfig& config) {
  return is_served(config) && config.servers > 0 && parts_of(config) > 1 && config.transport != "threads";
}

bool takes_copies(const RunConfig& config) { return workers_hold_parts(config) || copies_come_whole(config); }

bool takes_workers(const RunConfig& config) { return takes_newcomers(config) || takes_copies(config); }

bool replaces_workers(const RunConfig& config) {
  const bool takes_parameters_along = is_served(config) && config.servers == 0 && config.replication == 1;
  return takes_workers(config) && !takes_parameters_along;
}

bool goes_on_without_a_worker(const RunConfig& config) {
  const bool has_copies = config.servers == 0 && holders_of(config) > 1;
  return replicas_of(config) > 1 &&
         (workers_may_leave(config) || takes_newcomers(config) || workers_hold_parts(config) || has_copies);
}

bool may_balance(const RunConfig& config) {
  return (config.algorithm == "allreduce" || config.algorithm == "sync") && !is_served(config) &&
         parts_of(config) == 1 && config.balance != "off";
}

std::vector<std::uint64_t> fixed_balance(const RunConfig& config) {
  constexpr std::uint64_t kMostShare = 1000;
  const std::string& text = config.balance;
  std::vector<std::uint64_t> shares;
  if (text == "auto" || text == "on" || text == "off") {
    return shares;
  }
  for (const std::string& part : split(text, ',')) {
    std::uint64_t share = 0;
    const char* const end = part.data() + part.size();
    const auto [stop, error] = std::from_chars(part.data(), end, share);
    if (error != std::errc() || stop != end || share == 0 || share > kMostShare) {
      throw InputError(
          fmt::format("expected auto, on, off, or whole numbers from 1 to {} such as 3,1, got '{}'", kMostShare, text));
    }
    shares.push_back(share);
  }
  return shares;
}

void settle_chaos(RunConfig& config) {
  const auto seed = random_chaos_seed(config.chaos);
  if (!seed) {
    return;
  }
  if (is_of_one_process(config.algorithm) || config.transport == "threads") {
    throw InputError(
        fmt::format("--chaos {}: is for jobs of processes: choose --workers and an algorithm other than local and "
                    "hogwild, over sockets or MPI",
                    config.chaos));
  }
  config.chaos = random_chaos(*seed, {.workers = static_cast<int>(config.workers),
                                      .servers = static_cast<int>(processes_of(config) - config.workers),
                                      .parts = static_cast<int>(parts_of(config)),
                                      .survives_a_worker = goes_on_without_a_worker(config),
                                      .survives_a_server = holders_of(config) >= 2});
}

std::int64_t global_batch(const RunConfig& config) {
  return is_synchronous(config) ? config.batch : config.batch * replicas_of(config);
}

std::int64_t batch_per_worker(const RunConfig& config) {
  const std::int64_t shares = replicas_of(config) - config.backup_workers;
  return is_synchronous(config) ? (config.batch + shares - 1) / shares : config.batch;
}

std::int64_t unit_samples(const RunConfig& config) { return batch_per_worker(config) * config.n_push; }

std::int64_t units_of_step(const RunConfig& config) {
  return is_synchronous(config) ? replicas_of(config) - config.backup_workers : 1;
}

std::optional<int> loader_threads(const RunConfig& config) {
  return config.loader_threads < 0 ? std::nullopt : std::optional(static_cast<int>(config.loader_threads));
}

bool prefetches(const RunConfig& config, std::int64_t fetch_every) {
  return config.prefetch == "on" || (config.prefetch == "auto" && fetch_every > 1);
}

namespace {

void check_backup_workers(const RunConfig& config) {
  const std::string_view all = parts_of(config) > 1 ? "--replicas" : "--workers";
  const std::int64_t replicas = replicas_of(config);
  if (config.backup_workers >= replicas) {
    throw InputError(fmt::format("--backup-workers {}: with {} {} at most {} can be late", config.backup_workers, all,
                                 replicas, replicas - 1));
  }
  if (config.prefetch == "on") {
    throw InputError("--prefetch on: with --backup-workers a step begins with what came of the one before");
  }
  const std::int64_t shares = replicas - config.backup_workers;
  if (config.batch % shares != 0) {
    throw InputError(fmt::format(
        "--batch {}: expected a multiple of {}, the gradients of a step ({} {} less --backup-workers {}), such "
        "as {}",
        config.batch, shares, all, replicas, config.backup_workers, (config.batch + shares - 1) / shares * shares));
  }
}

void check_max_staleness(const RunConfig& config) {
  // Updates of a worker's own pushes between what it has fetched and its last push of that.
  const bool prefetch = prefetches(config, config.n_fetch);
  const std::int64_t behind = config.n_fetch - std::gcd(config.n_fetch, config.n_push);  // batches, of the worst unit
  // What is asked for early may overtake the push before, and misses the one of the batch that is computed meanwhile.
  const std::int64_t own = (behind + config.n_push - 1) / config.n_push + (prefetch ? 2 : 0);
  if (config.max_staleness < own) {
    throw InputError(
        fmt::format("--max-staleness {}: a worker's own pushes make what it has fetched {} updates old (--n-push {}, "
                    "--n-fetch {}{}): expected at least that",
                    config.max_staleness, own, config.n_push, config.n_fetch, prefetch ? ", --prefetch" : ""));
  }
}

/// What threads that update the same parameters without locks need; `choice` is what makes them do so.
void check_races(const RunConfig& config, std::string_view choice) {
  const bool momentum = config.momentum > 0 || config.nesterov;
  if (momentum || (config.optimizer != "sgd" && config.optimizer != "adagrad")) {
    throw InputError(fmt::format(
        "{} updates without locks, which {} does not bear: choose --optimizer sgd without momentum, or adagrad", choice,
        momentum ? "momentum" : "--optimizer " + config.optimizer));
  }
  if (config.accumulate > 1) {
    throw InputError(fmt::format("--accumulate {}: {} makes an update of each batch; choose a smaller --batch",
                                 config.accumulate, choice));
  }
}

void check_hogwild_workers(const RunConfig& config) {
  if (!is_served(config) || is_synchronous(config) || is_sandblaster(config)) {
    throw InputError(fmt::format(
        "--thread-mode hogwild is for asynchronous algorithms with parameter servers: async, downpour, softsync; not "
        "for {}",
        config.algorithm));
  }
  check_races(config, "--thread-mode hogwild");
  if (config.adaptive == "on") {
    throw InputError("--thread-mode hogwild needs a fixed --n-push, which --adaptive on chooses itself");
  }
  const std::int64_t least = config.threads == 0 ? 2 : config.threads;
  if (config.n_push < least) {
    throw InputError(fmt::format(
        "--n-push {}: with --thread-mode hogwild each thread needs a batch of its own of a push: expected {} or more",
        config.n_push, least));
  }
}

void check_sandblaster(const RunConfig& config) {
  if (config.portion > 0 && config.portion % config.batch != 0) {
    throw InputError(fmt::format("--portion {}: expected a multiple of --batch {}, so that batches stay the same",
                                 config.portion, config.batch));
  }
}

/// What is for runs through parameter servers.
void check_servers(const RunConfig& config) {
  if (is_sandblaster(config)) {
    check_sandblaster(config);
  }
  if (config.backup_workers > 0) {
    check_backup_workers(config);
  }
  if (has_hogwild_workers(config)) {
    check_hogwild_workers(config);
  }
  if (config.adaptive == "on") {
    const char* const why = config.n_push != 1 || config.n_fetch != 1 ? "chooses --n-push and --n-fetch itself"
                            : config.max_staleness >= 0               ? "knows no --max-staleness"
                                                                      : nullptr;
    if (why != nullptr) {
      throw InputError(fmt::format("--adaptive on {}", why));
    }
  }
  if (config.max_staleness >= 0) {
    check_max_staleness(config);
  }
  if (config.algorithm == "softsync" && config.n > replicas_of(config)) {
    throw InputError(fmt::format("--n {}: with {} {} an update can be of one gradient at least: --n {}", config.n,
                                 parts_of(config) > 1 ? "--replicas" : "--workers", replicas_of(config),
                                 replicas_of(config)));
  }
}

}  // namespace

void forget_other_plan(const RunConfig& before, RunConfig& config) {
  if (config.partition != before.partition && config.stages == before.stages && config.tensor == before.tensor) {
    config.stages = 0;
    config.tensor = 0;
  }
  if (config.partition == before.partition && (config.stages != before.stages || config.tensor != before.tensor)) {
    config.partition = 0;
  }
  const bool same = config.stages == before.stages && config.tensor == before.tensor;
  if (!same && config.stage_at == before.stage_at) {
    config.stage_at.clear();
  }
  if (!same && config.cuts == before.cuts) {
    config.cuts.clear();
  }
  if (!same && config.shares == before.shares) {
    config.shares.clear();
  }
  if (!same && config.micro_batches == before.micro_batches) {
    config.micro_batches = 0;
  }
}

void leave_out_cut(RunConfig& config) {
  const RunConfig usual;
  config.partition = usual.partition;
  config.stages = usual.stages;
  config.tensor = usual.tensor;
  config.replicas = usual.replicas;
  config.stage_at = usual.stage_at;
  config.cuts = usual.cuts;
  config.shares = usual.shares;
}

void settle_grid(RunConfig& config) {
  if (config.partition > 0 && config.stages > 0 && config.tensor == 0 && config.partition % config.stages == 0) {
    config.tensor = config.partition / config.stages;
  }
  if (config.partition > 0 && config.tensor > 0 && config.stages == 0 && config.partition % config.tensor == 0) {
    config.stages = config.partition / config.tensor;
  }
  if (config.partition > 0 && (config.stages > 0 || config.tensor > 0) &&
      config.partition != config.stages * config.tensor) {
    const bool both = config.stages > 0 && config.tensor > 0;
    throw InputError(both ? fmt::format("--partition {} is not --stages {} times --tensor {}; leave one of them out",
                                        config.partition, config.stages, config.tensor)
                          : fmt::format("--partition {}: expected a multiple of --{} {}", config.partition,
                                        config.stages > 0 ? "stages" : "tensor",
                                        std::max(config.stages, config.tensor)));
  }
  const std::int64_t parts = parts_of(config);
  if (parts > 1 && config.algorithm == "local") {
    config.algorithm = "allreduce";  // of one replica, unless more are asked for
  }
  if (config.replicas > 0) {
    if (config.workers > 0 && config.workers != config.replicas * parts) {
      throw InputError(fmt::format("--workers {} contradicts --replicas {} of {} worker{} each; leave one of them out",
                                   config.workers, config.replicas, parts, parts == 1 ? "" : "s"));
    }
    config.workers = config.replicas * parts;
  } else if (config.workers == 0 && config.hosts.empty() && parts > 1) {
    config.workers = parts;
  }
}

namespace {

constexpr std::int64_t kMostMicroBatches = 256;  // that PartLinks can tell from each other

constexpr std::int64_t kMostServedParts = 63;  // that tags of servers can tell from each other

/// What the workers of a copy, who get answers from servers of their own, cannot agree on.
void check_served_grid(const RunConfig& config) {
  if (parts_of(config) > kMostServedParts) {
    throw InputError(
        fmt::format("--algorithm {}: with parameter servers a copy of the network is of at most {} workers, "
                    "not {}",
                    config.algorithm, kMostServedParts, parts_of(config)));
  }
  const std::string_view given = config.servers == 0           ? "--servers 0"
                                 : has_hogwild_workers(config) ? "--thread-mode hogwild"
                                                               : "";
  if (!given.empty()) {
    throw InputError(fmt::format("{}: with parameter servers that is for networks that one worker holds whole, not {}",
                                 given, parts_of(config)));
  }
}

/// What is for networks that several workers hold together.
void check_grid(const RunConfig& config) {
  const std::int64_t parts = parts_of(config);
  if (!config.shares.empty() && (parts == 1 || config.tensor == 1)) {
    throw InputError(
        fmt::format("--shares {}: no stage is shared out; expected --tensor 2 or more too", config.shares));
  }
  if (parts == 1) {
    if (!config.cuts.empty() || !config.stage_at.empty()) {
      throw InputError(fmt::format("--{}: the network is in one process; expected --{} 2 or more too",
                                   config.cuts.empty() ? "stage-at " + config.stage_at : "cuts " + config.cuts,
                                   config.cuts.empty() ? "stages" : "tensor"));
    }
    return;
  }
  if (config.workers % parts != 0) {
    throw InputError(fmt::format("--workers {}: expected a multiple of {}, the workers of each copy of the network",
                                 config.workers, parts));
  }
  if (config.replicas > 0 && config.workers != config.replicas * parts) {
    throw InputError(
        fmt::format("--replicas {}: {} workers were started, {} a copy", config.replicas, config.workers, parts));
  }
  if (std::max(config.micro_batches, config.accumulate) > kMostMicroBatches) {
    throw InputError(fmt::format("--micro-batches {}: expected at most {}",
                                 std::max(config.micro_batches, config.accumulate), kMostMicroBatches));
  }
  if (is_of_one_process(config.algorithm)) {
    throw InputError(
        fmt::format("--algorithm {}: a network over {} workers is trained with allreduce, sync, averaging, "
                    "gossip, async, downpour, softsync or sandblaster",
                    config.algorithm, parts));
  }
  if (is_served(config)) {
    check_served_grid(config);
  }
  if (config.clip_norm > 0 && config.algorithm == "gossip") {
    throw InputError(fmt::format(
        "--clip-norm {}: with gossip the parts of a network make their updates at different times; choose --clip-value",
        config.clip_norm));
  }
  if (config.thread_mode == "lanes") {
    throw InputError(
        fmt::format("--thread-mode lanes: threads of a network over {} workers work inside kernels", parts));
  }
}

}  // namespace

void check_config(const RunConfig& config) {
  check_grid(config);
  if (config.early_stop > 0 && config.validation <= 0) {
    throw InputError("--early-stop needs --validation: it watches data that is not trained on");
  }
  if (is_of_one_process(config.algorithm) && config.workers > 1) {
    throw InputError(fmt::format("--algorithm {} trains in one process; for --workers {} choose another: allreduce",
                                 config.algorithm, config.workers));
  }
  if (config.algorithm == "hogwild") {
    check_races(config, "--algorithm hogwild");
  }
  check_algorithm_options(config);
  check_servers(config);  // before anything is divided by what it leaves
  if (config.accumulate > batch_per_worker(config)) {
    throw InputError(fmt::format("--accumulate {}: a worker's batch has only {} samples", config.accumulate,
                                 batch_per_worker(config)));
  }
  const std::size_t shares = fixed_balance(config).size();
  if (shares > 0 && static_cast<std::int64_t>(shares) != config.workers) {
    throw InputError(
        fmt::format("--balance {}: shares of {} workers, where there are {}", config.balance, shares, config.workers));
  }
  if (config.algorithm == "gossip" && config.gossip_quorum >= replicas_of(config)) {
    throw InputError(fmt::format("--gossip-quorum {}: with {} {} there are only {} others", config.gossip_quorum,
                                 parts_of(config) > 1 ? "--replicas" : "--workers", replicas_of(config),
                                 replicas_of(config) - 1));
  }
  if (config.average_every < 0 && config.outer_optimizer != "none") {
    throw InputError("--outer-optimizer needs averages to go on from: --average-every STEPS or epoch");
  }
  const ChaosScript chaos = parse_chaos(config.chaos);
  const bool one_process = is_of_one_process(config.algorithm);
  chaos.check_fit({.workers = static_cast<int>(config.workers),
                   .servers = static_cast<int>(processes_of(config) - config.workers),
                   .workers_are_threads = !one_process && config.transport == "threads",
                   .has_coordinator = !one_process});
  if (config.schedule == "step" && config.step_every <= 0 && config.milestones.empty()) {
    throw InputError("--schedule step needs --step-every or --milestones");
  }
}

}  // namespace distbelief
