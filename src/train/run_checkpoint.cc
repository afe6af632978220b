#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "strategy/step_exchange.h"
#include "tensor/vector_ops.h"
#include "train/report_json.h"
#include "train/run_remainder.h"
#include "train/state_arrays.h"
#include "train/trainer_run.h"

namespace distbelief {
namespace {

using nlohmann::json;

json sums_json(const LossSums& sums) { return {{"loss", sums.loss}, {"correct", sums.correct}, {"rows", sums.rows}}; }

LossSums sums_from(const json& value) { return {value.at("loss"), value.at("correct"), value.at("rows")}; }

std::string digest_text(const ParameterTable& table) { return fmt::format("{:016x}", table.digest()); }

}  // namespace

std::string state_text(const TrainingState& state, const std::map<std::string, std::vector<std::uint64_t>>& numbers) {
  return json_text(json{{"numbers", numbers},
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
                        {"events", team_events_json(state.events)},
                        {"last", epoch_report_json(state.last)}});
}

void parse_state(const std::string& text, const std::string& file, TrainingState& state,
                 std::map<std::string, std::vector<std::uint64_t>>& numbers) {
  try {
    const json root = json::parse(text);
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
    state.events = team_events_from(root.value("events", json::array()));
  } catch (const json::exception& error) {
    throw FileError(fmt::format("{}: the state of the run is damaged: {}", file, error.what()));
  }
}

void Trainer::Run::write_checkpoint(std::optional<double> score) {
  if (!folder && !parted) {
    checkpointed_step = state.step;
    return;
  }
  if (led_by_others()) {
    return;
  }
  doing(WorkerActivity::Kind::writing_checkpoint);
  bool finite = all_finite(replica->values().data(), own_table().size());
  if (parted) {
    finite = part_links->all(finite);
    if (finite && !parted->leads()) {
      parted->serve(lists());
      checkpointed_step = state.step;
    }
    if (!parted->leads()) {
      return;
    }
  }
  if (!finite) {
    observer.note("the parameters are not finite: no checkpoint is written, the one before stays");
    return;
  }
  CheckpointState saved;
  StateSaver saver(own_table());
  if (team.served != nullptr) {
    if (!served_state(saved)) {
      return;  // a server is lost, which ends the run
    }
  } else {
    strategy->visit_state(saver);
    saved.blobs[kLedgerBlob] = ledger.save();
  }
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
  if (parted) {
    const std::vector<PartedModel::List> all = lists();
    saved.values = parted->arrays(std::span(all).first(1));
    saved.state = parted->arrays(all);
    saved.state.erase(saved.state.begin(), saved.state.begin() + std::ssize(saved.values));
  } else {
    saved.values = named_arrays(table, replica->values());
    saved.state = saver.arrays();
  }
  distbelief::write_checkpoint(folder->checkpoints(), saved);
  if (parted) {
    parted->finish();
  }
  prune_checkpoints(folder->checkpoints(), static_cast<std::size_t>(config.keep_checkpoints), 1);
  checkpointed_step = state.step;
}

std::string Trainer::Run::join_team() {
  if (team.group == nullptr) {
    return {};
  }
  std::string text, marks;
  if (team.leads()) {
    std::map<std::string, std::vector<std::uint64_t>> here = strategy_numbers;
    here["place"] = {static_cast<std::uint64_t>(state.step), state.epoch, state.position,
                     static_cast<std::uint64_t>(checkpointed_step + 1)};
    text = state_text(state, here);
    marks = ledger.save();
  }
  for (std::string* part : {&text, &marks}) {
    if (const Outcome outcome = team.share(*part); !outcome.ok()) {
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
    strategy_numbers = numbers;
  }
  return agreed([this] {
           share_out();
           return strategy->join();
         })
      .culprit;
}

void Trainer::Run::restore_served(const Checkpoint& checkpoint) {
  const std::string where = checkpoint.path().string();
  std::size_t count = 0;
  while (checkpoint.has_blob(server_blob(count))) {
    ++count;
  }
  if (!all_parts.empty() && count != all_parts.size() * static_cast<std::size_t>(team.served->servers)) {
    throw InputError(
        fmt::format("{}: has {} files of servers, where {} servers have {} parts of the network each: "
                    "expected the same --servers and the same cut",
                    where, count, team.served->servers, all_parts.size()));
  }
  if (all_parts.empty() && static_cast<int>(count) != team.served->servers) {
    throw InputError(fmt::format("{}: written by {} servers, not {}: expected --{} {}", where, count,
                                 team.served->servers, team.served->inside ? "workers" : "servers", count));
  }
  restored = ServedState{
      .source = where, .books = checkpoint.blob(kBooksBlob), .leader = checkpoint.blob(kLeaderBlob), .servers = {}};
  for (std::size_t server = 0; server < count; ++server) {
    restored->servers.push_back(checkpoint.blob(server_blob(server)));
  }
}

bool Trainer::Run::restore() {
  remove_partial_checkpoints(folder->checkpoints());
  LatestCheckpoint latest = latest_checkpoint(folder->checkpoints());
  for (const auto& skipped : latest.skipped) {
    observer.note(fmt::format("{} cannot be used: {}", skipped.path.string(), skipped.reason));
  }
  if (!latest.checkpoint && !latest.skipped.empty()) {
    throw InputError(fmt::format("{}: none of its checkpoints can be used; the newest: {}",
                                 folder->checkpoints().string(), latest.skipped.front().reason));
  }
  if (!latest.checkpoint) {
    return false;
  }
  const Checkpoint& checkpoint = *latest.checkpoint;
  const CheckpointManifest& manifest = checkpoint.manifest();
  const std::string where = checkpoint.path().string();
  if (manifest.model_digest != digest_text(table)) {
    throw InputError(fmt::format("{}: written for a model with other parameters than {}", where, graph.name()));
  }
  if (checkpoint.has_blob(kLedgerBlob)) {
    const std::uint64_t samples = SampleLedger::samples_in(checkpoint.blob(kLedgerBlob), where);
    if (samples != data.train->size()) {
      throw InputError(other_samples(folder->path(), config, data.train->size(), samples));
    }
  }
  std::map<std::string, std::vector<std::uint64_t>> numbers;
  parse_state(manifest.extra, where, state, numbers);
  if (!part) {
    read_named_arrays(table, checkpoint.values(), "", replica->values());
  }
  if (part) {
    strategy_numbers = numbers;
    ledger.restore(checkpoint.blob(kLedgerBlob), where);
  } else if (team.served != nullptr) {
    restore_served(checkpoint);
  } else {
    StateLoader loader(table, checkpoint.state(), numbers);
    strategy->visit_state(loader);
    ledger.restore(checkpoint.blob(kLedgerBlob), where);
  }
  state.step = manifest.step;
  state.epoch = static_cast<std::uint64_t>(manifest.epoch);
  state.position = static_cast<std::uint64_t>(manifest.position);
  checkpointed_step = state.step;
  if (part) {
    to_share_out = std::move(latest.checkpoint);
  }
  return true;
}

}  // namespace distbelief
