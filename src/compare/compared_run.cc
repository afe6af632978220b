#include "compare/compared_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "metrics/format.h"
#include "metrics/metrics_log.h"

namespace distbelief {
namespace {

void read_summary(const std::filesystem::path& file, ComparedRun& run) {
  try {
    const Json root = parse_json(read_file(file));
    run.status = root.at("status");
    run.problem = root.value("problem", "");
    run.algorithm = root.at("algorithm");
    run.workers = root.at("workers");
    run.servers = root.at("servers");
    run.threads = root.at("threads");
    run.seconds = root.at("train_seconds");
    run.samples_per_second = root.at("samples_per_second");
    if (const auto staleness = root.find("staleness"); staleness != root.end()) {
      run.staleness_mean = staleness->at("mean");
      run.staleness_max = staleness->at("max");
    }
  } catch (const JsonError& error) {
    throw FileError(fmt::format("{}: expected the summary of a run: {}", file.string(), error.what()));
  }
}

}  // namespace

std::string Measure::name() const {
  return fmt::format("{} {}", on_validation ? "validation" : "test", is_accuracy ? "accuracy" : "loss");
}

std::string Measure::text(double score) const { return is_accuracy ? percent_text(score) : measure_text(score); }

std::string Measure::target_text() const {
  return !target ? "" : is_accuracy ? fmt::format("{:g} %", 100 * *target) : fmt::format("{:g}", *target);
}

const ComparedRun::Point* ComparedRun::best(const Measure& measure) const {
  const auto better = [&](const Point& a, const Point& b) {
    return a.score != b.score && measure.reaches(a.score, b.score);
  };
  const auto found = std::ranges::min_element(points, better);
  return found == points.end() ? nullptr : &*found;
}

const ComparedRun::Point* ComparedRun::reached(const Measure& measure) const {
  const auto found = std::ranges::find_if(
      points, [&](const Point& point) { return measure.target && measure.reaches(point.score, *measure.target); });
  return found == points.end() ? nullptr : &*found;
}

ComparedRun read_compared_run(const std::filesystem::path& folder, const std::string& label, const Measure& measure) {
  ComparedRun run = {.label = label, .algorithm = label.substr(0, label.find(':')), .problem = {}, .points = {}};
  if (std::filesystem::exists(folder / "summary.json")) {
    read_summary(folder / "summary.json", run);
  }
  if (!std::filesystem::exists(folder / "metrics.jsonl")) {
    return run;
  }
  std::string column = measure.name();
  std::ranges::replace(column, ' ', '_');
  for (const MetricsRow& row : read_metrics(folder / "metrics.jsonl")) {
    const std::optional<double> score = row.value(column);
    const std::optional<double> samples = row.value("samples");
    if (!score || !samples) {
      continue;
    }
    run.points.push_back({.seconds = row.time, .samples = *samples, .score = *score});
    if (const std::optional<double> sent = row.value("sent_bytes"); sent && *sent > 0 && *samples > 0) {
      run.bytes_per_sample = *sent / *samples;
    }
  }
  return run;
}

}  // namespace distbelief
