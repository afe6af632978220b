#include "train/run_relay.h"

#include <cmath>

#include "base/file.h"
#include "base/json.h"
#include "train/report_json.h"

namespace distbelief {
namespace {}  // namespace

void RunRelay::started(const std::vector<std::string>& lines) {
  send_(json_text(Json{{"event", "started"}, {"lines", lines}}));
}

void RunRelay::stepped(const ProgressState& state) {
  const auto now = Clock::now();
  if (told_ && now - *told_ < std::chrono::milliseconds(100)) {
    return;
  }
  told_ = now;
  send_(json_text(Json{{"event", "stepped"},
                       {"epoch", state.epoch},
                       {"epochs", state.epochs},
                       {"step", state.step},
                       {"steps", state.steps},
                       {"loss", state.loss},
                       {"accuracy", number_or_null(state.accuracy)},
                       {"samples_per_second", state.samples_per_second}}));
}

void RunRelay::epoch_ended(const EpochReport& report) {
  send_(json_text(Json{{"event", "epoch_ended"}, {"report", epoch_report_json(report)}}));
}

void RunRelay::note(std::string_view text) { send_(json_text(Json{{"event", "note"}, {"text", text}})); }

void RunRelay::ended(const RunSummary& summary) {
  send_(json_text(Json{{"event", "ended"}, {"summary", run_summary_json(summary)}}));
}

std::optional<RunSummary> replay_line(const std::string& line, RunObserver& observer) {
  const Json value = try_parse_json(line);
  const std::string event = value.is_object() ? value.value("event", "") : "";
  try {
    if (event == "started") {
      observer.started(value.at("lines").get<std::vector<std::string>>());
    } else if (event == "stepped") {
      observer.stepped({.epoch = value.at("epoch"),
                        .epochs = value.at("epochs"),
                        .step = value.at("step"),
                        .steps = value.at("steps"),
                        .loss = value.at("loss").is_null() ? std::nan("") : value.at("loss").get<double>(),
                        .accuracy = value.at("accuracy").is_null() ? std::nullopt
                                                                   : std::optional(value.at("accuracy").get<double>()),
                        .samples_per_second = value.at("samples_per_second")});
    } else if (event == "epoch_ended") {
      observer.epoch_ended(epoch_report_from(value.at("report")));
    } else if (event == "note") {
      observer.note(value.at("text").get<std::string>());
    } else if (event == "ended") {
      return run_summary_from(value.at("summary"));
    } else {
      observer.note(line);
    }
  } catch (const JsonError&) {
    observer.note(line);
  }
  return std::nullopt;
}

std::optional<RunSummary> written_summary(const std::filesystem::path& folder, std::filesystem::file_time_type since) {
  const std::filesystem::path file = folder / "summary.json";
  std::error_code missing;
  if (std::filesystem::last_write_time(file, missing) < since || missing) {
    return std::nullopt;
  }
  try {
    const Json root = parse_json(read_file(file));
    const Json& samples = root.at("samples");
    RunSummary summary;
    summary.status = root.at("status");
    summary.workers = root.at("workers");
    summary.servers = root.at("servers");
    summary.restarts = root.at("restarts");
    summary.steps = root.at("steps");
    summary.epochs = root.at("epochs");
    summary.train_seconds = root.at("train_seconds");
    summary.samples_per_second = root.at("samples_per_second");
    summary.problem = root.value("problem", "");
    summary.folder = folder;
    const auto number = [&](const char* key) {
      return root.at(key).is_null() ? std::nullopt : std::optional(root.at(key).get<double>());
    };
    summary.last.test_accuracy = number("test_accuracy");
    summary.last.test_loss = number("test_loss");
    summary.samples = {.leased = samples.at("leased"),
                       .applied = samples.at("applied"),
                       .dropped = samples.at("dropped"),
                       .lost = samples.at("lost"),
                       .duplicated = samples.at("duplicated")};
    return summary;
  } catch (const JsonError&) {
    return std::nullopt;
  }
}

}  // namespace distbelief
