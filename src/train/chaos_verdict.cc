#include "train/chaos_verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "checkpoint/safetensors.h"
#include "cluster/chaos.h"

namespace distbelief {
namespace {

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) {
    text += (text.empty() ? "" : ", ") + part;
  }
  return text;
}

void judge_end(const RunSummary& summary, ChaosVerdict& verdict) {
  const bool ended = summary.status == "finished" || summary.status == "stopped early";
  (ended ? verdict.kept : verdict.broken).push_back("the run " + (ended ? summary.status : "is " + summary.status));
}

void judge_samples(const SampleAudit& audit, ChaosVerdict& verdict) {
  const std::size_t before = verdict.broken.size();
  if (audit.lost != 0) {
    verdict.broken.push_back(fmt::format("{} samples are lost", audit.lost));
  }
  if (audit.duplicated != 0) {
    verdict.broken.push_back(fmt::format("{} samples were applied twice", audit.duplicated));
  }
  if (audit.leased != audit.applied + audit.dropped + audit.lost) {
    verdict.broken.push_back(fmt::format("of {} samples that were leased {} were applied and {} dropped", audit.leased,
                                         audit.applied, audit.dropped));
  }
  if (verdict.broken.size() == before) {
    verdict.kept.push_back(fmt::format("the audit of {} samples is exact", audit.applied));
  }
}

void judge_model(const std::filesystem::path& file, ChaosVerdict& verdict) {
  if (!std::filesystem::exists(file)) {
    verdict.broken.emplace_back("there is no model");
    return;
  }
  const SafetensorsFile model(file);
  std::vector<float> values;
  for (const TensorEntry& tensor : model.view().tensors()) {
    values.resize(static_cast<std::size_t>(tensor.shape.elements()));
    model.view().read(tensor, values);
    if (!std::ranges::all_of(values, [](float value) { return std::isfinite(value); })) {
      verdict.broken.push_back(fmt::format("'{}' is not finite", tensor.name));
      return;
    }
  }
  verdict.kept.emplace_back("all parameters are finite");
}

void judge_events(const RunConfig& config, const std::filesystem::path& folder, ChaosVerdict& verdict) {
  if (!config.hosts.empty()) {
    return;  // who does not see the folder writes nothing down there
  }
  std::vector<std::string> marks;
  std::ifstream in(folder / kChaosMarksFile);
  for (std::string line; std::getline(in, line);) {
    marks.push_back(line);
  }
  int all = 0;
  int happened = 0;
  for (const ChaosEvent& event : parse_chaos(config.chaos).events) {
    if (event.effect->when == ChaosEffect::When::during) {
      continue;
    }
    ++all;
    if (std::ranges::any_of(marks, [&](const std::string& mark) { return mark.ends_with(": " + event.text); })) {
      ++happened;
    } else {
      verdict.broken.push_back(fmt::format("'{}' did not happen", event.text));
    }
  }
  if (happened == all && all > 0) {
    verdict.kept.push_back(fmt::format("{} of {} events happened", happened, all));
  }
}

}  // namespace

std::string ChaosVerdict::text() const { return passed() ? "pass: " + joined(kept) : "FAIL: " + joined(broken); }

ChaosVerdict judge_chaos(const RunConfig& config, const RunSummary& summary) {
  ChaosVerdict verdict;
  judge_end(summary, verdict);
  judge_samples(summary.samples, verdict);
  judge_model(summary.folder / "model.safetensors", verdict);
  judge_events(config, summary.folder, verdict);
  return verdict;
}

void write_verdict(const ChaosVerdict& verdict, const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "summary.json";
  Json root = try_parse_json(read_file(file));
  if (root.is_discarded()) {
    throw FileError(fmt::format("{}: expected the summary of a run", file.string()));
  }
  root["chaos"] = {{"passed", verdict.passed()}, {"kept", verdict.kept}, {"broken", verdict.broken}};
  write_file_atomically(file, json_text(root, 2) + "\n");
}

}  // namespace distbelief
