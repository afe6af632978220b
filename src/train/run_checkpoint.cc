#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "strategy/step_exchange.h"
#include "tensor/vector_ops.h"
#include "train/report_json.h"
#include "train/state_arrays.h"
#include "train/trainer_run.h"

namespace distbelief {
namespace {

Json sums_json(const LossSums& sums) { return {{"loss", sums.loss}, {"correct", sums.correct}, {"rows", sums.rows}}; }

LossSums sums_from(const Json& value) { return {value.at("loss"), value.at("correct"), value.at("rows")}; }

/// A second place holds all that a run needs to go on there: its configuration, metrics and checkpoints.
void copy_checkpoint(const std::filesystem::path& second, const CheckpointState& saved,
                     const std::filesystem::path& metrics, std::size_t keep) {
  std::error_code error;
  std::filesystem::create_directories(second, error);
  if (error) {
    throw FileError(fmt::format("{}: cannot make the folder: {}", second.string(), error.message()));
  }
  write_file_atomically(second / "run.yaml", saved.blobs.at(kConfigBlob));
  write_file_atomically(second / "metrics.jsonl", read_file(metrics));
  write_checkpoint(second / "checkpoints", saved);
  prune_checkpoints(second / "checkpoints", keep, 1);
}

}  // namespace

std::string state_text(const TrainingState& state, const std::map<std::string, std::vector<std::uint64_t>>& numbers) {
  return json_text(Json{{"numbers", numbers},
                        {"epoch_sums", sums_json(state.epoch_sums)},
                        {"logged_sums", sums_json(state.logged_sums)},
                        {"train_seconds", state.train_seconds},
                        {"epoch_began", state.epoch_began},
                        {"logged_at", state.logged_at},
                        {"best_score", state.best_score},
                        {"best_step", state.best_step},
                        {"epochs_since_best", state.epochs_since_best},
                        {"metrics_rows", state.metrics_rows},
                        {"sent_bytes", state.sent_bytes},
                        {"steps_per_epoch", state.steps_per_epoch},
                        {"schedule_ahead", state.schedule_ahead},
                        {"events", team_events_json(state.events)},
                        {"shares", member_shares_json(state.shares)},
                        {"last", epoch_report_json(state.last)}});
}

void parse_state(const std::string& text, const std::string& file, TrainingState& state,
                 std::map<std::string, std::vector<std::uint64_t>>& numbers) {
  try {
    const Json root = parse_json(text);
    numbers = root.at("numbers").get<std::map<std::string, std::vector<std::uint64_t>>>();
    state.epoch_sums = sums_from(root.at("epoch_sums"));
    state.logged_sums = sums_from(root.at("logged_sums"));
    state.train_seconds = root.at("train_seconds");
    state.epoch_began = root.at("epoch_began");
    state.logged_at = root.at("logged_at");
    state.best_score = root.at("best_score");
    state.best_step = root.at("best_step");
    state.epochs_since_best = root.at("epochs_since_best");
    state.last = epoch_report_from(root.at("last"));
    state.metrics_rows = root.at("metrics_rows");
    state.sent_bytes = root.at("sent_bytes");
    state.steps_per_epoch = root.at("steps_per_epoch");
    state.schedule_ahead = root.at("schedule_ahead");
    state.events = team_events_from(root.value("events", Json::array()));
    state.shares = member_shares_from(root.value("shares", Json::array()));
  } catch (const JsonError& error) {
    throw FileError(fmt::format("{}: the state of the run is damaged: {}", file, error.what()));
  }
}

void Trainer::Run::make_writer() {
  const auto keep = static_cast<std::size_t>(config.keep_checkpoints);
  const auto place = [checkpoints = folder->checkpoints(), keep](const CheckpointState& saved) {
    distbelief::write_checkpoint(checkpoints, saved);
    prune_checkpoints(checkpoints, keep, 1);
  };
  CheckpointWriter::Place copy;
  if (!config.checkpoint_copy.empty()) {
    copy = [second = std::filesystem::path(config.checkpoint_copy), metrics_file = folder->metrics(),
            keep](const CheckpointState& saved) { copy_checkpoint(second, saved, metrics_file, keep); };
  }
  writer = std::make_unique<CheckpointWriter>(place, copy);
}

void Trainer::Run::heard(const CheckpointWriter::Result& result) {
  const auto tell = [this](const std::string& text) {
    if (!text.empty()) {
      observer.note(text);
    }
  };
  if (result.problem.empty()) {
    knows_checkpoint = true;
    tell(checkpoint_trouble.succeeded("checkpoints are"));
    kept_best_step = result.score ? result.step : kept_best_step;
  } else {
    checkpoint_lost = checkpoint_lost || result.step == checkpointed_step;
    tell(checkpoint_trouble.failed(fmt::format("no checkpoint of step {}", result.step), result.problem,
                                   has_one_before() ? "the one before stays, and the next is tried when it is due"
                                                    : "and the next is tried when it is due"));
  }
  if (result.copy_problem.empty()) {
    tell(copy_trouble.succeeded("copies of checkpoints are"));
  } else {
    tell(copy_trouble.failed(fmt::format("no copy of the checkpoint of step {}", result.step), result.copy_problem,
                             "and the next is tried when it is due"));
  }
}

void Trainer::Run::hear_of_checkpoints(bool wait) {
  if (writer == nullptr) {
    return;
  }
  if (wait) {
    writer->wait();
  }
  for (const CheckpointWriter::Result& result : writer->results()) {
    heard(result);
  }
}

void Trainer::Run::write_checkpoint(std::optional<double> score) {
  const auto attempted = [this] {
    checkpointed_step = state.step;
    checkpoint_lost = false;
  };
  if (!folder && !parted) {
    attempted();
    return;
  }
  if (led_by_others()) {
    return;
  }
  if (unclaimed) {
    claim_folder();
  }
  doing(WorkerActivity::Kind::writing_checkpoint);
  bool finite = all_finite(replica->values().data(), own_table().size());
  if (parted) {
    finite = part_links->all(finite);
    if (finite && !parted->leads()) {
      const bool written = parted->serve(lists());
      attempted();
      checkpoint_lost = !written;
    }
    if (!parted->leads()) {
      return;
    }
  }
  if (!finite) {
    observer.note(fmt::format("the parameters are not finite: no checkpoint is written{}",
                              has_one_before() ? ", the one before stays" : ""));
    return;
  }
  if (writer == nullptr) {
    make_writer();
  }
  hear_of_checkpoints(true);  // what became of the one before may change what this one says
  CheckpointState saved;
  StateSaver saver(own_table());
  if (team.served != nullptr) {
    if (!served_state(saved)) {
      return;  // a server is lost, which ends the run
    }
  } else {
    strategy->visit_state(saver);
    saved.blobs[kLedgerBlob] = ledger.save();
    if (!later_epochs.empty()) {
      saved.blobs[kLaterBlob] = epochs_text(later_epochs);
    }
  }
  saved.blobs[kConfigBlob] = config_text(config);
  const SampleAudit audit = served_audit ? *served_audit : ledger.total();
  saved.manifest.step = state.step;
  saved.manifest.epoch = static_cast<std::int64_t>(state.epoch);
  saved.manifest.position = static_cast<std::int64_t>(state.position);
  saved.manifest.seed = config.seed;
  saved.manifest.model_digest = digest_text(table);
  saved.manifest.score = score;
  saved.manifest.samples = {{"leased", audit.leased},
                            {"applied", audit.applied},
                            {"dropped", audit.dropped},
                            {"lost", audit.lost},
                            {"duplicated", audit.duplicated}};
  saved.manifest.extra = state_text(state, saver.all_numbers());
  attempted();
  if (parted) {  // nobody has all of it in memory: all wait until it is written
    const std::vector<PartedModel::List> all = lists();
    saved.values = parted->arrays(std::span(all).first(1));
    saved.state = parted->arrays(all);
    saved.state.erase(saved.state.begin(), saved.state.begin() + std::ssize(saved.values));
    const CheckpointWriter::Result result = writer->write_now(saved);
    heard(result);
    parted->finish(result.problem.empty());
    return;
  }
  saved.values = named_arrays(table, replica->values());
  saved.state = saver.arrays();
  writer->begin(std::move(saved));
}

std::string Trainer::Run::join_team() {
  if (team.group == nullptr) {
    return {};
  }
  std::string text, marks, later;
  if (team.leads()) {
    std::map<std::string, std::vector<std::uint64_t>> here = strategy_numbers;
    here["place"] = {static_cast<std::uint64_t>(state.step), state.epoch, state.position,
                     static_cast<std::uint64_t>(checkpointed_step + 1)};
    text = state_text(state, here);
    marks = ledger.save();
    later = epochs_text(later_epochs);
  }
  for (std::string* piece : {&text, &marks, &later}) {
    if (const Outcome outcome = team.share(*piece); !outcome.ok()) {
      return lost_text(outcome);
    }
  }
  if (!team.leads()) {
    std::map<std::string, std::vector<std::uint64_t>> numbers;
    parse_state(text, "the leader's message", state, numbers);
    const std::vector<std::uint64_t>& there = numbers.at("place");
    state.step = static_cast<std::int64_t>(there.at(0));
    state.epoch = there.at(1);
    state.position = there.at(2);
    checkpointed_step = static_cast<std::int64_t>(there.at(3)) - 1;  // all must know when there is one to write
    ledger.restore(marks, "the leader's message");
    later_epochs = epochs_from(later, "the leader's message");
    strategy_numbers = numbers;
  }
  return agreed([this] {
           share_out();
           StepReport report = strategy->join();
           joined = joined || (part && report.outcome == StepReport::Outcome::stepped);
           return report;
         })
      .culprit;
}

}  // namespace distbelief
