#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/file.h"
#include "exec/thread_mode.h"
#include "metrics/format.h"
#include "metrics/machine.h"
#include "params/slower_rule.h"
#include "plan/parameter_layout.h"
#include "strategy/all_reduce.h"
#include "strategy/gossip.h"
#include "strategy/hogwild.h"
#include "strategy/local.h"
#include "strategy/periodic_averaging.h"
#include "strategy/root_update.h"
#include "train/copies_text.h"
#include "train/core_share.h"
#include "train/measured_plan.h"
#include "train/model_cut.h"
#include "train/run_change.h"
#include "train/run_remainder.h"
#include "train/state_arrays.h"
#include "train/trainer_run.h"

namespace distbelief {
namespace {

ScheduleOptions schedule_options(const RunConfig& config, std::uint64_t steps_per_epoch) {
  ScheduleOptions options;
  options.name = config.schedule;
  options.rate = config.lr;
  options.steps_per_epoch = steps_per_epoch;
  options.step_every = config.step_every;
  options.milestones = config.milestones;
  options.gamma = config.gamma;
  options.floor = config.lr_floor;
  options.warmup_epochs = config.warmup_epochs;
  return options;
}

ModelCard describe_model(const RunConfig& config, const RunData& data) {
  ModelCard card;
  card.model = {config.model, data.train->spec(), config.model_options};
  if (is_model_file(config.model)) {
    if (!config.model_options.empty()) {
      throw InputError(fmt::format("--model-options {}=...: {} is a model file, which has its sizes in it",
                                   config.model_options.begin()->first, config.model));
    }
    card.model_text = read_file(config.model);
  }
  card.normalization = data.normalization;
  card.class_names = data.train->class_names();
  card.data = config.data;
  return card;
}

/// Whether samples are sparse, and parameters have rows that they name; and few enough for places of 32 bits.
bool touches_few_rows(const Graph& graph, const ParameterTable& table) {
  return graph.node(0).output.kind == ValueKind::sparse && table.size() <= std::numeric_limits<std::uint32_t>::max() &&
         std::ranges::any_of(table.entries(), [](const ParameterEntry& entry) { return entry.spec.row_floats > 0; });
}

}  // namespace

std::string Trainer::Run::team_text() const {
  if (part) {
    return copies_text(grid, replica_options.micro_batches);
  }
  return fmt::format("{} with the whole network", counted(static_cast<std::size_t>(team.size()), "worker"));
}

Trainer::Run::Run(RunConfig given, const Team& members, RunObserver& watcher, RunData opened, ModelCard described)
    : config(std::move(given)),
      team(members),
      observer(watcher),
      data(std::move(opened)),
      card(std::move(described)),
      graph(graph_of(card)),
      table(layout_parameters(graph)),
      rule(make_rule(rule_options(config))),
      ledger(data.train->size()) {
  if (team.activity == nullptr) {
    own_activity = std::make_unique<WorkerActivity>();
    team.activity = own_activity.get();
  }
  const SampleSpec& spec = data.train->spec();
  graph.loss().check_fit(graph.node(graph.output()).output.shape, spec.classes, spec.targets);
  for (const std::string& pattern : config.freeze) {
    table.freeze(pattern);
  }
  if (!team.late) {
    config.workers = team.workers();  // what is written down is what runs
  }
  original = team.went_back != nullptr ? team.went_back->original : config;
  generation = team.went_back != nullptr ? team.went_back->generation : 0;
  // Who comes later has no place until the others have told it all, and begins nothing if all of them have gone.
  team.spare = team.late && team.served == nullptr;
  if (is_cut() && team.spare) {
    return;  // the others say what it is to hold
  }
  take_part();
  size_up();
  state.steps_per_epoch = steps_per_epoch;
  make_replica();
  // Where there are servers each part of it makes what it needs; and who comes later gets its group from the others.
  if (team.served == nullptr && !team.late) {
    strategy = make_strategy();
  }
}

void Trainer::Run::make_replica() {
  ReplicaOptions& options = replica_options;
  options.seed = config.seed;
  options.watch = &team.activity->compute();
  options.threads = compute_threads();
  if (has_hogwild_workers(config)) {
    options.threads = static_cast<int>(std::min<std::int64_t>(options.threads, config.n_push));
  }
  options.micro_batches = micro_batches_of(config);
  if (part) {
    options.links = part_links.get();
    options.order = config.pipeline == "gpipe" ? PipelineOrder::gpipe : PipelineOrder::one_forward_one_backward;
    options.recompute = config.recompute;
    options.partial_gradients = part->partial_gradients;
  }
  if (team.served != nullptr && !part && !has_hogwild_workers(config) && !is_sandblaster(config) &&
      touches_few_rows(graph, table) && config.threads <= 1 && config.accumulate == 1) {
    options.threads = 1;  // what a sparse batch has to compute is less than what whole gradients have to be moved
    options.gradient_rows = GradientRows::touched;
  }
  const std::int64_t rows = (worker_batch + config.accumulate - 1) / config.accumulate;
  options.mode = config.thread_mode == "lanes"             ? ThreadMode::lanes
                 : config.thread_mode == "kernels" || part ? ThreadMode::kernels
                                                           : faster_thread_mode(graph, rows, options.threads);
  config.threads = options.threads;
  if (!has_hogwild_workers(config)) {
    config.thread_mode = thread_mode_name(options.mode);
  }
  replica = std::make_unique<Replica>(part ? part->graph : graph, own_table(), options);
  own_table().initialize(config.seed, replica->values());
}

void Trainer::Run::size_up() {
  RunConfig now = config;
  if (team.served == nullptr) {
    now.workers = team.size();
    if (config.elastic_batch == "worker" && is_synchronous(config)) {
      now.batch = std::max<std::int64_t>(1, config.batch * replicas_of(now) / replicas_of(original));
    }
  }
  rate_scale = static_cast<double>(now.batch) / static_cast<double>(config.batch);
  global_batch = distbelief::global_batch(now);
  worker_batch = batch_per_worker(now);
  const auto batch =
      static_cast<std::uint64_t>(team.served != nullptr ? unit_samples(config) * units_of_step(config) : global_batch);
  steps_per_epoch = (data.train->size() + batch - 1) / batch;
  schedule = make_schedule(schedule_options(config, steps_per_epoch));
}

std::unique_ptr<Strategy> Trainer::Run::make_strategy() {
  GroupOptions group_options = {.most_rows = worker_batch, .patience = team.patience};
  if (is_cut() && team.next && team.replicas() > 1) {
    group_options.commit = [group = team.group](Clock::time_point deadline) { return group->barrier(deadline); };
  }
  if (config.algorithm == "hogwild") {
    return std::make_unique<Hogwild>(
        *replica, *rule,
        Hogwild::Options{.threads = replica_options.threads, .batch = config.batch, .locked = config.hogwild_locks});
  }
  if (team.group == nullptr) {
    return std::make_unique<Local>(*replica, *rule);
  }
  if (config.algorithm == "sync") {
    return std::make_unique<RootUpdate>(*replica, *rule, *team.across(), group_options);
  }
  if (config.algorithm == "averaging") {
    if (config.outer_optimizer != "none") {
      outer_rule = make_rule({.name = config.outer_optimizer, .momentum = static_cast<float>(config.outer_momentum)});
    }
    return std::make_unique<PeriodicAveraging>(
        *replica, *rule, *team.across(),
        PeriodicAveraging::Options{.group = group_options,
                                   .every = std::max<std::int64_t>(config.average_every, 0),
                                   .only_for_show = config.average_every < 0,
                                   .outer = outer_rule.get(),
                                   .outer_rate = static_cast<float>(config.outer_lr)});
  }
  if (config.algorithm == "gossip") {
    // Every worker's gradient is an update: the recipe is for one update a step.
    const SlowerRule slower = slower_rule(rule_options(config), team.replicas());
    rule = make_rule(slower.options);
    const int others = team.replicas() - 1;
    const int quorum = config.gossip_quorum < 0 ? team.replicas() / 2 : static_cast<int>(config.gossip_quorum);
    return std::make_unique<Gossip>(
        *replica, *rule, *team.across(),
        Gossip::Options{
            .group = group_options, .quorum = std::min(quorum, others), .rate = static_cast<float>(slower.rate)});
  }
  return std::make_unique<AllReduce>(*replica, *rule, *team.across(), group_options);
}

Trainer::Trainer(RunConfig config, RunObserver& observer) : Trainer(std::move(config), observer, Beginning{}) {}

Trainer Trainer::resume(const std::filesystem::path& folder, RunConfig config, RunObserver& observer) {
  return Trainer(std::move(config), observer, Beginning{.team = {}, .folder = folder, .resumes = true});
}

Trainer Trainer::in_team(const Team& team, const std::filesystem::path& folder, bool resumes, RunConfig config,
                         RunObserver& observer, std::shared_ptr<OpenedRun> opened) {
  return Trainer(std::move(config), observer,
                 Beginning{.team = team, .folder = folder, .resumes = resumes, .opened = std::move(opened)});
}

std::shared_ptr<OpenedRun> Trainer::open(const RunConfig& config) {
  check_config(config);
  RunData data = open_run_data(config);
  ModelCard card = describe_model(config, data);
  return std::make_shared<OpenedRun>(OpenedRun{std::move(data), std::move(card)});
}

Trainer::Trainer(RunConfig config, RunObserver& observer, const Beginning& beginning) {
  check_config(config);
  const bool alone = beginning.team.group == nullptr && beginning.team.served == nullptr;
  std::optional<FolderLock> lock;
  if (alone && beginning.folder) {
    lock.emplace(RunFolder::open(*beginning.folder).path());
  }
  const std::shared_ptr<OpenedRun> opened = beginning.opened ? beginning.opened : open(config);
  run_ = std::make_unique<Run>(std::move(config), beginning.team, observer, std::move(opened->data),
                               std::move(opened->card));
  Run& run = *run_;
  if (lock) {
    run.lock.emplace(std::move(*lock));
  }

  if (!run.team.leads()) {
    run.config.out = beginning.folder->string();
    if (run.team.went_back != nullptr) {
      observer.follows();
    }
    return;
  }
  try {
    begin(observer, beginning);
  } catch (const InputError&) {
    run.discard();
    throw;
  }
}

void Trainer::begin(RunObserver& observer, const Beginning& beginning) {
  Run& run = *run_;
  bool restored = false;
  if (beginning.folder) {
    run.folder.emplace(RunFolder::open(*beginning.folder));
    if (run.team.went_back != nullptr) {
      run.claim_folder();
    } else {
      std::error_code ignored;
      std::filesystem::remove(run.folder->leader(), ignored);  // of an earlier job
    }
    restored = beginning.resumes && run.restore();
  }
  std::optional<InitReport> initialised;
  if (!run.config.init.empty() && !restored) {
    initialised = run.part ? init_report(run.config.init, run.table)
                           : init_from(run.config.init, run.table, run.replica->values());
    run.initialised = true;
  }
  if (!run.folder) {
    run.folder.emplace(RunFolder::create(run.config, run.data.name));
    if (std::optional<FolderLock> lock = run.folder->take_lock()) {
      run.lock.emplace(std::move(*lock));
    }
    run.is_new = true;
  }
  run.config.out = run.folder->path().string();
  if (!run.config.checkpoint_copy.empty() && is_same_folder(run.config.checkpoint_copy, run.config.out)) {
    run.config.checkpoint_copy.clear();
    run.resume_changes.emplace_back("now     no copies of checkpoints: this folder is their second place");
  }
  if (!run.config.chaos.empty() && run.team.chaos == nullptr) {
    run.own_chaos = std::make_unique<WorkerChaos>(
        run.config, WorkerChaos::Place{.folder = run.folder->path(),
                                       .note = [&observer](const std::string& text) { observer.note(text); }});
    run.team.chaos = run.own_chaos.get();
  }
  write_file_atomically(run.folder->config(), config_text(run.config));
  const bool begun = std::filesystem::exists(run.folder->metrics());
  run.metrics.emplace(MetricsLog::resume(run.folder->metrics(), run.state.metrics_rows));
  run.events = std::make_unique<EventFile>(run.folder->path(), this_machine().host, wall_clock(), run.state.step);

  if (run.team.went_back != nullptr) {
    observer.takes_over();
    run.note_way_back();
    return;
  }
  const SampleSpec& spec = run.data.train->spec();
  std::vector<std::string> lines = {
      fmt::format("model   {}: {} parameters in {}", run.graph.name(),
                  grouped(static_cast<std::uint64_t>(run.table.parameter_count())),
                  counted(run.graph.nodes().size() - 1, "layer")),
      fmt::format("data    {}: {} samples of {}{}", run.data.name, grouped(run.data.train->size()), spec.input.text(),
                  spec.classes > 0 ? fmt::format(", {} classes", spec.classes) : ""),
      is_sandblaster(run.config)
          ? fmt::format("update  L-BFGS with a history of {}, {} samples a portion", run.config.history,
                        run.portion_options().portion)
          : fmt::format("update  {}, batch {}{}, rate {}", run.rule->name(), run.config.batch,
                        run.config.accumulate > 1 ? fmt::format(" in {} parts", run.config.accumulate) : "",
                        run.config.lr),
      fmt::format("threads {} ({})", run.config.threads,
                  run.config.algorithm == "hogwild" || has_hogwild_workers(run.config) ? "each on batches of its own"
                  : run.config.thread_mode == "lanes"                                  ? "each on its part of the batch"
                                                                                       : "inside each kernel"),
      fmt::format("folder  {}", run.folder->path().string())};
  if (initialised) {
    lines.push_back(
        fmt::format("init    {} kept from {}", counted(initialised->kept.size(), "parameter"), run.config.init));
    for (const std::string& name : initialised->kept) {
      lines.push_back("          kept " + name);
    }
    for (const std::string& name : initialised->anew) {
      lines.push_back("          anew " + name);
    }
  }
  if (run.team.served != nullptr) {
    const std::string servers = run.team.served->inside ? "inside them" : std::to_string(run.config.servers);
    const std::string updates =
        run.config.algorithm == "softsync"
            ? "updates of " +
                  counted(static_cast<std::size_t>(std::max<std::int64_t>(1, replicas_of(run.config) / run.config.n)),
                          "gradient")
        : run.config.algorithm == "sync"
            ? fmt::format("steps of the first {}, {} samples each", counted(units_of_step(run.config), "gradient"),
                          unit_samples(run.config))
        : is_sandblaster(run.config)
            ? fmt::format("push every {} or fewer, fetch for every evaluation",
                          counted(static_cast<std::uint64_t>(run.config.portions_per_push), "portion"))
            : fmt::format("push every {}, fetch every {}", run.config.n_push, run.config.n_fetch);
    lines.insert(lines.begin() + 3, fmt::format("workers {}, servers {} ({}): {}", run.config.workers, servers,
                                                run.config.algorithm, updates));
    if (run.config.transport != "threads") {
      lines.insert(lines.begin() + 4, copies_of_parameters_text(run.config));
    }
    if (run.grid.parts() > 1) {
      lines.insert(lines.begin() + 4, "cut     " + copies_text(run.grid, run.replica_options.micro_batches));
    }
  } else if (run.part) {
    lines.insert(lines.begin() + 3,
                 {fmt::format("workers {} ({}): {}", run.team.size(), run.config.algorithm, run.team_text()),
                  copies_of_parts_text(run.grid, run.config)});
  } else if (run.team.size() > 1) {
    const bool even = run.global_batch % run.team.size() == 0;
    const std::string share =
        fixed_balance(run.config).empty()
            ? fmt::format("{}{} samples each a step", even ? "" : "at most ", batch_per_worker(run.config))
            : fmt::format("shares of a step in proportions {}", run.config.balance);
    lines.insert(lines.begin() + 3, fmt::format("workers {} ({}), {}", run.team.size(), run.config.algorithm, share));
  }
  if (run.grid.tensor > 1 && std::ranges::all_of(run.partition.cuts, [](Cut cut) { return cut == Cut::none; })) {
    lines.push_back(fmt::format(
        "note    no layer is worth cutting: each of {} workers does the same; --cuts says otherwise", run.grid.tensor));
  }
  if (run.measured_shares) {
    lines.push_back(fmt::format("shares  {} of the work of a stage, by the speeds of the workers", run.config.shares));
  }
  if (beginning.resumes && (restored || begun)) {
    lines.push_back(restored ? fmt::format("resume  at step {}, epoch {}", run.state.step, run.state.epoch + 1)
                             : "resume  from the start: there is no checkpoint yet");
    std::ranges::copy(run.resume_changes, std::back_inserter(lines));
  }
  observer.started(lines);
}

CheckedRun check_run(const RunConfig& config, const PlanKnowledge& knowledge) {
  check_config(config);
  const RunData data = open_run_data(config);
  const Graph graph = graph_of(describe_model(config, data));
  const SampleSpec& spec = data.train->spec();
  graph.loss().check_fit(graph.node(graph.output()).output.shape, spec.classes, spec.targets);
  ParameterTable table = layout_parameters(graph);
  if (!config.init.empty()) {
    (void)init_report(config.init, table);
  }
  RunConfig planned = config;
  for (const std::string& pattern : config.freeze) {
    table.freeze(pattern);
  }
  plan_by_measurement(planned, graph, table, knowledge);
  if (parts_of(planned) > 1) {
    (void)part_of(graph, table, partition_of(planned, graph), 0, 0);
  }
  return {.planned = planned,
          .model = graph.name(),
          .data = data.name,
          .model_digest = digest_text(table),
          .samples = data.train->size(),
          .has_classes = spec.classes > 0,
          .has_test = data.test != nullptr,
          .has_validation = data.validation != nullptr};
}

namespace {

void take_plan(const CheckedRun& checked, RunConfig& config) {
  if (parts_of(config) == 1) {
    return;
  }
  config.stages = checked.planned.stages;
  config.tensor = checked.planned.tensor;
  config.stage_at = checked.planned.stage_at;
  config.cuts = checked.planned.cuts;
  config.shares = checked.planned.shares;
  config.micro_batches = checked.planned.micro_batches;
}

}  // namespace

LockedFolder make_run_folder(RunConfig config, const CheckedRun& checked) {
  RunFolder folder = RunFolder::create(config, checked.data);
  config.out = folder.path().string();
  take_plan(checked, config);
  write_file_atomically(folder.config(), config_text(config));
  return {folder.path(), *folder.take_lock()};
}

LockedFolder prepare_run(const RunConfig& config, const PlanKnowledge& knowledge) {
  return make_run_folder(config, check_run(config, knowledge));
}

Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&&) noexcept = default;

const std::filesystem::path& Trainer::folder() const { return run_->folder->path(); }
bool Trainer::leads() const { return run_->team.leads(); }
const std::optional<RollBack>& Trainer::roll_back() const { return run_->roll_back; }

void Trainer::Run::discard() {
  if (!is_new || checkpointed_step >= 0) {
    return;
  }
  std::vector<std::filesystem::path> files = {folder->config(), folder->metrics(), folder->checkpoints()};
  if (events != nullptr) {
    files.push_back(events->path());
  }
  metrics.reset();
  events.reset();
  folder->discard(files);
}

RunSummary Trainer::run(const std::function<bool()>& stop_requested) {
  if (run_->team.served == nullptr) {
    try {
      return run_->train(stop_requested);
    } catch (const InputError&) {
      run_->discard();
      throw;
    }
  }
  return is_sandblaster(run_->config) ? run_->train_sandblaster(stop_requested) : run_->train_served(stop_requested);
}

LockedFolder change_run(const std::filesystem::path& path, RunConfig config, const PlanKnowledge& knowledge) {
  check_config(config);
  const RunFolder folder = RunFolder::open(path);
  FolderLock lock(path);
  expect_usable_checkpoint(path, config, knowledge.note);
  expect_samples_of_run(path, config, knowledge);
  if (parts_of(config) > 1) {
    take_plan(check_run(config, knowledge), config);
  }
  config.out = folder.path().string();
  write_file_atomically(folder.config(), config_text(config));
  return {path, std::move(lock)};
}

RunConfig config_of_run(const std::filesystem::path& folder) {
  RunConfig config;
  apply_config_file(config, RunFolder::open(folder).config());
  return config;
}

}  // namespace distbelief
