#include "compare/comparison.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "metrics/format.h"

namespace distbelief {
namespace {

constexpr const char* kFile = "compare.json";
constexpr const char* kNone = "–";

Json run_json(const ComparedRun& run, const Comparison::Entry& entry, const Measure& measure) {
  Json root;
  root["label"] = entry.label;
  root["folder"] = entry.folder;
  root["algorithm"] = run.algorithm;
  root["status"] = run.status;
  if (!run.problem.empty()) {
    root["problem"] = run.problem;
  }
  root["workers"] = run.workers;
  root["servers"] = run.servers;
  root["threads"] = run.threads;
  const ComparedRun::Point* const best = run.best(measure);
  root["best"] = best == nullptr ? Json(nullptr) : Json(best->score);
  root["last"] = run.points.empty() ? Json(nullptr) : Json(run.points.back().score);
  const ComparedRun::Point* const reached = run.reached(measure);
  root["seconds_to_target"] = reached == nullptr ? Json(nullptr) : Json(reached->seconds);
  root["samples_to_target"] = reached == nullptr ? Json(nullptr) : Json(reached->samples);
  root["train_seconds"] = run.seconds;
  root["samples_per_second"] = run.samples_per_second;
  root["bytes_per_sample"] = number_or_null(run.bytes_per_sample);
  root["staleness_mean"] = number_or_null(run.staleness_mean);
  root["staleness_max"] = number_or_null(run.staleness_max);
  root["points"] = Json::array();
  for (const ComparedRun::Point& point : run.points) {
    root["points"].push_back({{"seconds", point.seconds}, {"samples", point.samples}, {"score", point.score}});
  }
  return root;
}

}  // namespace

void Comparison::look(const std::filesystem::path& folder) {
  runs.clear();
  for (const Entry& entry : entries) {
    runs.push_back(read_compared_run(folder / entry.folder, entry.label, measure));
  }
}

bool Comparison::is_over() const {
  return std::ranges::all_of(runs, [](const ComparedRun& run) { return run.is_over(); });
}

Comparison read_comparison(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / kFile;
  if (!std::filesystem::exists(file)) {
    throw InputError(fmt::format("{}: there is no comparison in this folder", folder.string()));
  }
  Comparison comparison;
  try {
    const Json root = parse_json(read_file(file));
    comparison.model = root.at("model");
    comparison.data = root.at("data");
    comparison.seed = root.at("seed");
    comparison.measure.is_accuracy = root.at("measure").get<std::string>().ends_with("accuracy");
    comparison.measure.on_validation = root.at("measure").get<std::string>().starts_with("validation");
    if (const Json& target = root.at("target"); !target.is_null()) {
      comparison.measure.target = target.get<double>();
    }
    for (const Json& run : root.at("runs")) {
      comparison.entries.push_back({.label = run.at("label"), .folder = run.at("folder")});
    }
  } catch (const JsonError& error) {
    throw FileError(fmt::format("{}: expected a comparison: {}", file.string(), error.what()));
  }
  return comparison;
}

std::string comparison_json(const Comparison& comparison) {
  Json root;
  root["model"] = comparison.model;
  root["data"] = comparison.data;
  root["seed"] = comparison.seed;
  root["measure"] = comparison.measure.name();
  root["target"] = number_or_null(comparison.measure.target);
  Json& machine = root["machine"] = Json::object();
  for (const auto& [key, value] : machine_pairs(comparison.machine)) {
    machine[key] = value;
  }
  root["runs"] = Json::array();
  for (std::size_t i = 0; i < comparison.entries.size(); ++i) {
    root["runs"].push_back(run_json(comparison.runs.at(i), comparison.entries[i], comparison.measure));
  }
  return json_text(root, 2) + "\n";
}

void write_comparison(const std::filesystem::path& folder, const Comparison& comparison) {
  write_file_atomically(folder / kFile, comparison_json(comparison));
  write_file_atomically(folder / "compare.html", comparison_html(comparison));
}

std::vector<std::vector<std::string>> comparison_rows(const Comparison& comparison) {
  const Measure& measure = comparison.measure;
  std::vector<std::string> heading = {"", "best"};
  if (measure.target) {
    heading.push_back("time to " + measure.target_text());
  }
  heading.insert(heading.end(), {"samples/s", "B/sample", "staleness", "time"});
  std::vector<std::vector<std::string>> rows = {heading};
  for (const ComparedRun& run : comparison.runs) {
    const ComparedRun::Point* const best = run.best(measure);
    std::vector<std::string> row = {run.label, best == nullptr ? kNone : measure.text(best->score)};
    if (measure.target) {
      const ComparedRun::Point* const reached = run.reached(measure);
      row.push_back(reached == nullptr ? kNone : duration_text(reached->seconds));
    }
    if (run.is_over()) {
      row.push_back(short_number(run.samples_per_second));
      row.push_back(run.bytes_per_sample ? short_number(*run.bytes_per_sample) : kNone);
      row.push_back(run.staleness_mean ? fmt::format("{:.1f}", *run.staleness_mean) : kNone);
      row.push_back(run.status == "diverged" ? "diverged" : duration_text(run.seconds));
    } else {
      row.insert(row.end(), {kNone, kNone, kNone, run.status});
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace distbelief
