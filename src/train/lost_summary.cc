#include "train/lost_summary.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "metrics/metrics_log.h"
#include "train/trainer_run.h"

namespace distbelief {
namespace {

/// How far the run had come when its last rows were written.
void take_last_rows(const std::filesystem::path& metrics, RunSummary& summary) {
  const auto finite = [](std::optional<double> value) { return value && std::isfinite(*value) ? value : std::nullopt; };
  for (const MetricsRow& row : read_metrics(metrics)) {
    summary.steps = std::max(summary.steps, row.step);
    summary.train_seconds = row.time;
    summary.samples_per_second = finite(row.value("samples_per_second")).value_or(summary.samples_per_second);
    if (const std::optional<double> loss = row.value("epoch_train_loss")) {
      summary.epochs = std::llround(row.epoch);
      summary.last.train_loss = *loss;
      summary.last.validation_loss = finite(row.value("validation_loss"));
      summary.last.validation_accuracy = finite(row.value("validation_accuracy"));
      summary.last.test_loss = finite(row.value("test_loss"));
      summary.last.test_accuracy = finite(row.value("test_accuracy"));
    }
  }
}

void write_with_unknown(const RunFolder& folder, const std::string& text, std::initializer_list<const char*> unknown) {
  Json root = parse_json(text);
  for (const char* name : unknown) {
    root[name] = nullptr;
  }
  write_file_atomically(folder.summary(), json_text(root, 2) + "\n");
}

}  // namespace

void write_lost_summary(RunSummary known) {
  const RunFolder folder = RunFolder::open(known.folder);
  const RunConfig config = config_of_run(known.folder);
  if (!known.model.empty()) {  // told by the one that led, but for what only that one's file would have
    write_with_unknown(folder, summary_text(known, config),
                       {"peak_memory_bytes", "failed_checkpoints", "failed_copies", "lost_metrics"});
    return;
  }
  known.model = config.model;
  known.data = config.data;
  known.threads = static_cast<int>(config.threads);
  known.thread_mode = config.thread_mode;
  try {
    take_last_rows(folder.metrics(), known);
  } catch (const FileError&) {
    // there are none yet
  }
  for (TeamEvent& event : known.events) {
    event.step = known.steps;
  }
  write_with_unknown(
      folder, summary_text(known, config),
      {"batch", "batch_per_worker", "workers_at_end", "loader_wait_seconds", "parameters", "model_step",
       "peak_memory_bytes", "sent_bytes", "samples", "failed_checkpoints", "failed_copies", "lost_metrics"});
}

}  // namespace distbelief
