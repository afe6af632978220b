#include <fmt/format.h>

#include <ctime>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "metrics/machine.h"
#include "metrics/report.h"
#include "models/model_text.h"
#include "train/report_json.h"
#include "train/state_arrays.h"
#include "train/trainer_run.h"

namespace distbelief {
namespace {

/// The rows that a history's curves need; an epoch's own loss is drawn with the others' training loss.
ReportData report_data(const RunSummary& summary, const RunConfig& config, const Graph& graph,
                       std::vector<MetricsRow> history) {
  ReportData report;
  report.model = summary.model;
  report.data = summary.data;
  report.algorithm = config.algorithm;
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char text[64];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M", &local);
  report.finished = text;
  report.epochs = summary.epochs;
  report.workers = summary.workers;
  report.threads = summary.threads;
  report.test_accuracy = summary.last.test_accuracy;
  report.test_loss = summary.last.test_loss;
  if (summary.epochs > 0) {
    report.train_loss = summary.last.train_loss;
  }
  report.train_seconds = summary.train_seconds;
  report.samples_per_second = summary.samples_per_second;
  report.parameters = static_cast<std::uint64_t>(summary.parameters);
  report.peak_memory_bytes = peak_memory_bytes();
  report.samples = summary.samples;
  report.history = std::move(history);
  for (const RunOption& option : run_options()) {
    report.configuration.emplace_back(option.key, option.get(config));
  }
  for (const LayerRow& row : summarize(graph).rows) {
    report.layers.push_back({row.name, row.type, row.output.text(), static_cast<std::uint64_t>(row.parameters),
                             static_cast<double>(row.flops)});
  }
  report.machine = this_machine();
  return report;
}

}  // namespace

std::string summary_text(const RunSummary& summary, const RunConfig& config) {
  Json root;
  root["status"] = summary.status;
  root["algorithm"] = config.algorithm;
  root["model"] = summary.model;
  root["data"] = summary.data;
  root["seed"] = config.seed;
  root["epochs"] = summary.epochs;
  root["steps"] = summary.steps;
  root["batch"] = summary.batch;
  root["batch_per_worker"] = summary.batch_per_worker;
  if (!summary.shares.empty()) {
    root["shares"] = member_shares_json(summary.shares);
  }
  root["optimizer"] = config.optimizer;
  root["workers"] = summary.workers;
  root["workers_at_end"] = summary.workers_at_end;
  root["restarts"] = summary.restarts;
  root["servers"] = summary.servers;
  root["threads"] = summary.threads;
  root["thread_mode"] = summary.thread_mode;
  root["train_loss"] = summary.epochs > 0 ? Json(summary.last.train_loss) : Json(nullptr);
  if (summary.last.validation_loss) {
    root["validation_loss"] = *summary.last.validation_loss;
    root["validation_accuracy"] = number_or_null(summary.last.validation_accuracy);
  }
  root["test_loss"] = number_or_null(summary.last.test_loss);
  root["test_accuracy"] = number_or_null(summary.last.test_accuracy);
  root["train_seconds"] = summary.train_seconds;
  root["samples_per_second"] = summary.samples_per_second;
  root["loader_wait_seconds"] = summary.loader_wait_seconds;
  root["parameters"] = summary.parameters;
  root["model_step"] = summary.model_step;
  root["peak_memory_bytes"] = peak_memory_bytes();
  root["sent_bytes"] = summary.sent_bytes;
  if (summary.server_bytes_moved > 0) {
    root["server_bytes_moved"] = summary.server_bytes_moved;
  }
  const SampleAudit& audit = summary.samples;
  root["samples"] = {{"leased", audit.leased},
                     {"applied", audit.applied},
                     {"dropped", audit.dropped},
                     {"lost", audit.lost},
                     {"duplicated", audit.duplicated}};
  root["failed_checkpoints"] = summary.failed_checkpoints;
  root["failed_copies"] = summary.failed_copies;
  root["lost_metrics"] = summary.lost_metrics;
  if (!summary.events.empty()) {
    root["events"] = team_events_json(summary.events);
  }
  if (summary.staleness) {
    const StalenessCounts& counts = *summary.staleness;
    Json histogram = Json::object();
    for (std::size_t i = 0; i < counts.units.size(); ++i) {
      if (counts.units[i] > 0) {
        histogram[i < StalenessCounts::kMost ? std::to_string(i) : fmt::format("{}+", i)] = counts.units[i];
      }
    }
    root["staleness"] = {{"mean", counts.mean()}, {"max", counts.most}, {"histogram", histogram}};
    root["rate_factor"] = summary.rate_factor;
  }
  if (!summary.problem.empty()) {
    root["problem"] = summary.problem;
  }
  return json_text(root, 2) + "\n";
}

Checkpoint Trainer::Run::best_checkpoint(RunSummary& summary) const {
  std::optional<Checkpoint> kept;
  std::string problem;
  for (const std::int64_t step : {state.best_step, kept_best_step}) {
    try {
      kept = read_checkpoint(folder->checkpoints() / fmt::format("step-{:08}", step));
      break;
    } catch (const FileError& error) {
      problem = problem.empty() ? error.what() : problem;
    }
  }
  if (!kept) {
    kept = std::move(latest_checkpoint(folder->checkpoints()).checkpoint);
  }
  if (!kept) {
    throw FileError(problem);
  }
  summary.model_step = kept->manifest().step;
  if (!problem.empty()) {
    observer.note(fmt::format("the checkpoint that did best cannot be used: {}; the model is that of step {}", problem,
                              summary.model_step));
  }
  return std::move(*kept);
}

void Trainer::Run::write_parted_model(RunSummary& summary) {
  if (state.best_step >= 0 && state.best_step != state.step) {
    const Checkpoint kept = best_checkpoint(summary);
    std::vector<FloatArray> arrays;
    for (const ParameterEntry& entry : table.entries()) {
      const SafetensorsView& values = kept.values();
      const TensorEntry& tensor = values.expect(entry.name, entry.shape);
      arrays.push_back(
          {.name = entry.name,
           .shape = entry.shape,
           .read = [&values, &tensor](std::int64_t first, std::span<float> out) { values.read(tensor, first, out); }});
    }
    write_model(folder->model(), card, arrays);
    return;
  }
  const std::vector<PartedModel::List> all = lists();
  write_model(folder->model(), card, parted->arrays(std::span(all).first(1)));
  parted->finish();
}

void Trainer::Run::write_results(RunSummary& summary) {
  summary.model = graph.name();
  summary.data = data.name;
  summary.parameters = table.parameter_count();
  summary.workers = static_cast<int>(team.went_back != nullptr ? original.workers : config.workers);
  summary.workers_at_end = workers_seen.value_or(team.workers());
  summary.events = state.events;
  summary.servers = team.served != nullptr && !team.served->inside ? team.served->servers : 0;
  summary.staleness = staleness;
  summary.rate_factor = rate_factor;
  summary.restarts = team.restarts;
  summary.batch = global_batch;
  summary.batch_per_worker = worker_batch;
  summary.shares = batch_shares();
  summary.threads = static_cast<int>(config.threads);
  summary.thread_mode = config.thread_mode;
  summary.steps = state.step;
  summary.epochs = static_cast<std::int64_t>(state.epoch);
  summary.last = state.last;
  summary.train_seconds = state.train_seconds;
  summary.samples = served_audit ? *served_audit : ledger.total();
  summary.sent_bytes = state.sent_bytes;
  summary.server_bytes_moved = moved_bytes ? moved_bytes() : 0;
  summary.folder = config.out;
  summary.has_classes = data.train->spec().classes > 0;
  summary.model_step = state.step;

  if (summary.status == "lost" && ((team.fenced && team.fenced()) || led_by_others())) {
    return;  // others go on, and the folder is theirs
  }
  const bool complete = summary.status == "finished" || summary.status == "stopped early";
  if (parted && !parted->leads() && summary.status != "lost") {
    if (summary.status != "diverged" && !has_checkpoint()) {
      write_checkpoint(std::nullopt);
    }
    if (complete && (state.best_step < 0 || state.best_step == state.step)) {
      (void)parted->serve(lists());
    }
  }
  if (!team.leads()) {
    if (part) {
      return;  // what was lost is nowhere else
    }
    if (team.served == nullptr && summary.status == "lost" && joined && team.takes_over && team.takes_over() &&
        strategy->holds_state()) {
      // This member knows as much as the leader did, so its work is not lost with it.
      if (!std::filesystem::exists(std::filesystem::path(config.out) / "run.yaml")) {
        observer.note(
            fmt::format("the first worker is lost, and this host does not see {}: no last checkpoint", config.out));
        return;
      }
      folder.emplace(RunFolder::open(config.out));
      write_checkpoint(std::nullopt);
      hear_of_checkpoints(true);
      write_file_atomically(folder->summary(), summary_text(summary, config));
    }
    return;
  }
  const bool diverged = summary.status == "diverged";
  const bool holds = strategy != nullptr && strategy->holds_state() && !(part && summary.status == "lost");
  if (!diverged && holds && !has_checkpoint()) {
    write_checkpoint(std::nullopt);
  }
  hear_of_checkpoints(true);
  summary.failed_checkpoints = checkpoint_trouble.count();
  summary.failed_copies = copy_trouble.count();
  summary.lost_metrics = metrics_trouble.count();
  if (complete && part) {
    write_parted_model(summary);
  } else if (complete) {
    Buffer best;
    std::span<const float> values = replica->values();
    if (state.best_step >= 0 && (state.best_step != state.step || team.served != nullptr)) {
      // Validation was asked for: the model that people take away is the one that did best on it.
      const Checkpoint kept = best_checkpoint(summary);
      best = float_buffer(table.size());
      read_named_arrays(table, kept.values(), "", best.as<float>());
      values = best.as<float>();
    }
    write_model(folder->model(), card, table, values);
  }
  write_file_atomically(folder->summary(), summary_text(summary, config));
  write_report(folder->report(), report_data(summary, config, graph, read_metrics(folder->metrics())));
}

}  // namespace distbelief
