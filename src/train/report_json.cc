#include "train/report_json.h"

#include "base/json.h"

namespace distbelief {
namespace {

std::optional<double> optional_from(const Json& value) {
  return value.is_null() ? std::nullopt : std::optional<double>(value.get<double>());
}

}  // namespace

Json epoch_report_json(const EpochReport& report) {
  return {{"epoch", report.epoch},
          {"train_loss", report.train_loss},
          {"train_accuracy", report.train_accuracy},
          {"validation_loss", number_or_null(report.validation_loss)},
          {"validation_accuracy", number_or_null(report.validation_accuracy)},
          {"test_loss", number_or_null(report.test_loss)},
          {"test_accuracy", number_or_null(report.test_accuracy)},
          {"samples_per_second", report.samples_per_second},
          {"best", report.best}};
}

EpochReport epoch_report_from(const Json& value) {
  EpochReport report;
  report.epoch = value.at("epoch");
  report.train_loss = value.at("train_loss");
  report.train_accuracy = value.at("train_accuracy");
  report.validation_loss = optional_from(value.at("validation_loss"));
  report.validation_accuracy = optional_from(value.at("validation_accuracy"));
  report.test_loss = optional_from(value.at("test_loss"));
  report.test_accuracy = optional_from(value.at("test_accuracy"));
  report.samples_per_second = value.at("samples_per_second");
  report.best = value.at("best");
  return report;
}

Json team_events_json(const std::vector<TeamEvent>& events) {
  Json list = Json::array();
  for (const TeamEvent& event : events) {
    list.push_back({{"what", name_of(event.what)}, {"who", event.who}, {"why", event.why}, {"step", event.step}});
  }
  return list;
}

std::vector<TeamEvent> team_events_from(const Json& value) {
  std::vector<TeamEvent> events;
  for (const Json& entry : value) {
    const auto what = entry.at("what").get<std::string>();
    events.push_back({what == name_of(TeamEvent::What::joined) ? TeamEvent::What::joined
                      : what == name_of(TeamEvent::What::left) ? TeamEvent::What::left
                                                               : TeamEvent::What::lost,
                      entry.at("who").get<std::string>(), entry.at("why").get<std::string>(),
                      entry.at("step").get<std::int64_t>()});
  }
  return events;
}

std::string_view name_of(TeamEvent::What what) {
  return what == TeamEvent::What::joined ? "joined" : what == TeamEvent::What::left ? "left" : "lost";
}

Json member_shares_json(const std::vector<MemberShare>& shares) {
  Json list = Json::array();
  for (const MemberShare& share : shares) {
    list.push_back({{"worker", share.worker}, {"samples", share.rows}});
  }
  return list;
}

std::vector<MemberShare> member_shares_from(const Json& value) {
  std::vector<MemberShare> shares;
  for (const Json& entry : value) {
    shares.push_back({entry.at("worker").get<int>(), entry.at("samples").get<std::int64_t>()});
  }
  return shares;
}

Json run_summary_json(const RunSummary& summary) {
  return {{"status", summary.status},
          {"model", summary.model},
          {"data", summary.data},
          {"parameters", summary.parameters},
          {"workers", summary.workers},
          {"workers_at_end", summary.workers_at_end},
          {"events", team_events_json(summary.events)},
          {"servers", summary.servers},
          {"restarts", summary.restarts},
          {"batch", summary.batch},
          {"batch_per_worker", summary.batch_per_worker},
          {"shares", member_shares_json(summary.shares)},
          {"threads", summary.threads},
          {"thread_mode", summary.thread_mode},
          {"steps", summary.steps},
          {"epochs", summary.epochs},
          {"last", epoch_report_json(summary.last)},
          {"model_step", summary.model_step},
          {"train_seconds", summary.train_seconds},
          {"samples_per_second", summary.samples_per_second},
          {"loader_wait_seconds", summary.loader_wait_seconds},
          {"samples",
           {summary.samples.leased, summary.samples.applied, summary.samples.dropped, summary.samples.lost,
            summary.samples.duplicated}},
          {"sent_bytes", summary.sent_bytes},
          {"problem", summary.problem},
          {"folder", summary.folder.string()},
          {"has_classes", summary.has_classes}};
}

RunSummary run_summary_from(const Json& value) {
  RunSummary summary;
  summary.status = value.at("status");
  summary.model = value.at("model");
  summary.data = value.at("data");
  summary.parameters = value.at("parameters");
  summary.workers = value.at("workers");
  summary.workers_at_end = value.at("workers_at_end");
  summary.events = team_events_from(value.at("events"));
  summary.servers = value.at("servers");
  summary.restarts = value.at("restarts");
  summary.batch = value.at("batch");
  summary.batch_per_worker = value.at("batch_per_worker");
  summary.shares = member_shares_from(value.at("shares"));
  summary.threads = value.at("threads");
  summary.thread_mode = value.at("thread_mode");
  summary.steps = value.at("steps");
  summary.epochs = value.at("epochs");
  summary.last = epoch_report_from(value.at("last"));
  summary.model_step = value.at("model_step");
  summary.train_seconds = value.at("train_seconds");
  summary.samples_per_second = value.at("samples_per_second");
  summary.loader_wait_seconds = value.at("loader_wait_seconds");
  const Json& samples = value.at("samples");
  summary.samples = {samples.at(0), samples.at(1), samples.at(2), samples.at(3), samples.at(4)};
  summary.sent_bytes = value.at("sent_bytes");
  summary.problem = value.at("problem");
  summary.folder = value.at("folder").get<std::string>();
  summary.has_classes = value.at("has_classes");
  return summary;
}

}  // namespace distbelief
