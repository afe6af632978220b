// How a run goes on from a checkpoint: as it was, to the bit, or as another one, which takes along what does not depend
// on who held what: parameters and the rule's state by name, the audit, and which samples of which epochs are done.
#include <algorithm>

#include "base/error.h"
#include "server/state_bytes.h"
#include "train/divergence_guard.h"
#include "train/model_cut.h"
#include "train/run_remainder.h"
#include "train/state_arrays.h"
#include "train/trainer_run.h"

namespace distbelief {
namespace {

/// What the guard against divergence had made of all rates.
double rate_factor_in(const std::string& leader, const std::string& source) {
  StateReader reader(leader, source);
  DivergenceGuard guard(1);
  guard.visit_state(reader);
  double factor = 1;
  reader.real("rate_factor", factor);
  return factor;
}

/// Part by part, each in the order of its servers.
std::vector<std::string> server_states(const Checkpoint& checkpoint) {
  std::vector<std::string> states;
  while (checkpoint.has_blob(server_blob(states.size()))) {
    states.push_back(checkpoint.blob(server_blob(states.size())));
  }
  return states;
}

std::uint64_t divide_up(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }

}  // namespace

std::vector<NetworkPart> Trainer::Run::parts_of_run(const RunConfig& before) const {
  std::vector<NetworkPart> parts;
  if (const Grid grid_before = grid_of(before); grid_before.parts() > 1) {
    const Partition partition_before = partition_of(before, graph);
    for (int at = 0; at < grid_before.parts(); ++at) {
      const GridPlace place = place_in(grid_before, at);
      parts.push_back(part_of(graph, table, partition_before, place.stage, place.tensor));
    }
  }
  return parts;
}

void Trainer::Run::restore_served(const Checkpoint& checkpoint, const RunConfig& before) {
  const std::string where = checkpoint.path().string();
  restored = ServedState{.source = where,
                         .books = checkpoint.blob(kBooksBlob),
                         .leader = checkpoint.blob(kLeaderBlob),
                         .servers = server_states(checkpoint)};
  if (is_sandblaster(config)) {  // of which each vector can be cut in another way
    const std::vector<NetworkPart> parts = parts_of_run(before);
    resumed = ResumedState{.whole = whole_state_of(
                               restored->servers, where, PartRuns(table, tables_of(parts)), *rule,
                               [](std::uint64_t) { return UpdateOptions{}; }, true),
                           .progress = {}};
    return;
  }
}

ResumedState Trainer::Run::resumed_state_of_servers(const Checkpoint& checkpoint, const RunConfig& before) const {
  const std::string where = checkpoint.path().string();
  const std::vector<std::string> servers = server_states(checkpoint);
  const Sampler sampler(data.train->size(), config.seed, true);
  ServedBooks books(sampler, {.epochs = before.epochs, .unit_samples = unit_samples(before), .seed = before.seed});
  books.restore(checkpoint.blob(kBooksBlob), where);
  std::vector<SavedLeases> leases;
  for (const std::string& server : servers) {
    leases.push_back(saved_leases(server, where));
  }
  (void)books.go_on(leases);

  const std::vector<NetworkPart> parts = parts_of_run(before);
  const std::unique_ptr<UpdateRule> rule_before = make_rule(rule_options(before));
  const auto units = static_cast<std::uint64_t>(units_of_step(before));
  const auto last_update = [&](std::uint64_t pushes) {  // of what was gathered: the schedule is that of now
    const std::uint64_t steps = pushes / units;
    return update_options(state.steps_per_epoch > 0 ? steps * steps_per_epoch / state.steps_per_epoch : steps);
  };
  return {.whole = whole_state_of(servers, where, PartRuns(table, tables_of(parts)), *rule_before, last_update),
          .progress = books.progress(),
          .rate_factor = rate_factor_in(checkpoint.blob(kLeaderBlob), where)};
}

ResumedState Trainer::Run::resumed_state(const Checkpoint& checkpoint, const RunConfig& before,
                                         const std::map<std::string, std::vector<std::uint64_t>>& numbers) const {
  ResumedState taken;
  if (is_served(before)) {
    taken = resumed_state_of_servers(checkpoint, before);
  } else {
    const std::string where = checkpoint.path().string();
    SampleLedger marks(data.train->size());
    marks.restore(checkpoint.blob(kLedgerBlob), where);
    taken.progress = {.closed = marks.closed(), .epochs = {{state.epoch, marks.save_epoch(), state.epoch_sums}}};
    if (checkpoint.has_blob(kLaterBlob)) {
      std::ranges::copy(epochs_from(checkpoint.blob(kLaterBlob), where), std::back_inserter(taken.progress.epochs));
    }
    taken.whole = whole_state_of(checkpoint, numbers, table, *make_rule(rule_options(before)));
  }
  if (!change_of(before, config).same_rule) {
    taken.whole.begin_rule_anew();
  }
  return taken;
}

void Trainer::Run::take_up(const EpochProgress& epoch) {
  state.epoch_sums = epoch.sums;
  state.position = data.train->size();
  if (!epoch.ledger.empty()) {
    ledger.take_over_epoch(epoch.ledger, "the checkpoint");
    state.position = ledger.settled();
  }
}

void Trainer::Run::take_from_servers(const Checkpoint& checkpoint, const RunConfig& before,
                                     std::map<std::string, std::vector<std::uint64_t>>& numbers) {
  resumed = resumed_state(checkpoint, before, numbers);
  if (resumed->rate_factor < 1) {
    resume_changes.emplace_back("        rates that were lowered against divergence are whole again");
  }
  ledger.add_closed(resumed->progress.closed);
  later_epochs = std::move(resumed->progress.epochs);
  state.epoch_sums = {};
  state.position = 0;
  if (!later_epochs.empty() && later_epochs.front().number == state.epoch) {
    take_up(later_epochs.front());
    later_epochs.erase(later_epochs.begin());
  }
  numbers = {{"updates", {resumed->whole.updates}}};
  if (part) {
    return;  // shared out later
  }
  std::ranges::copy(resumed->whole.values, replica->values().begin());
  StateFiller filler(resumed->whole);
  strategy->visit_state(filler);
  resumed.reset();
}

void Trainer::Run::restore_strategy(const Checkpoint& checkpoint, const RunConfig& before,
                                    std::map<std::string, std::vector<std::uint64_t>>& numbers) {
  const std::string where = checkpoint.path().string();
  ledger.restore(checkpoint.blob(kLedgerBlob), where);
  if (checkpoint.has_blob(kLaterBlob)) {
    later_epochs = epochs_from(checkpoint.blob(kLaterBlob), where);
  }
  const RunChange change = change_of(before, config);
  if (!part) {
    read_named_arrays(table, checkpoint.values(), "", replica->values());
  }
  if (change.same_strategy) {
    if (!part) {
      StateLoader loader(table, checkpoint.state(), numbers);
      strategy->visit_state(loader);
    }
    return;
  }
  // What another strategy kept besides means nothing here.
  if (!part && change.same_rule) {
    const WholeState whole = whole_state_of(checkpoint, numbers, table, *rule);
    StateFiller filler(whole);
    strategy->visit_state(filler);
  }
  taken_slots.emplace();
  for (int slot = 0; change.same_rule && slot < rule->slots(); ++slot) {
    taken_slots->emplace(rule->slot_name(slot));
  }
  std::erase_if(numbers, [&](const auto& number) { return !change.same_rule || number.first != "updates"; });
}

bool Trainer::Run::restore() {
  remove_partial_checkpoints(folder->checkpoints());
  std::optional<Checkpoint> found =
      checkpoint_to_go_on_from(folder->checkpoints(), config, [this](std::string_view line) { observer.note(line); });
  if (!found) {
    return false;
  }
  const Checkpoint& checkpoint = *found;
  const CheckpointManifest& manifest = checkpoint.manifest();
  const std::string where = checkpoint.path().string();
  const RunConfig before = config_of_checkpoint(checkpoint, folder->path());
  expect_change_is_possible(folder->path(), before, config);
  if (manifest.model_digest != digest_text(table)) {
    throw InputError(fmt::format("{}: written for a model with other parameters than {}", where, graph.name()));
  }
  if (const auto samples = samples_of(checkpoint); samples && *samples != data.train->size()) {
    throw InputError(other_samples(folder->path(), config, data.train->size(), *samples));
  }
  std::map<std::string, std::vector<std::uint64_t>> numbers;
  parse_state(manifest.extra, where, state, numbers);
  state.step = manifest.step;
  state.epoch = static_cast<std::uint64_t>(manifest.epoch);
  state.position = static_cast<std::uint64_t>(manifest.position);
  checkpointed_step = state.step;
  knows_checkpoint = true;
  const RunChange change = change_of(before, config);
  if (const std::string text = change_text(before, config); !text.empty()) {
    resume_changes.push_back("now     " + text);
  }
  if (!change.same_rule && !is_sandblaster(config)) {
    resume_changes.push_back("        the optimizer's state begins anew");
  }
  if (team.served != nullptr) {
    read_named_arrays(table, checkpoint.values(), "", replica->values());
    // States of an older program are of servers, and with --replication 1 there may be fewer shelves: they are cut
    // anew.
    const auto shelves = static_cast<std::size_t>(grid.parts() * shelves_of(*team.served, table.size()));
    const bool is_of_shelves =
        checkpoint.has_blob(server_blob(shelves - 1)) && !checkpoint.has_blob(server_blob(shelves));
    if ((change.same_servers && is_of_shelves) || is_sandblaster(config)) {
      restore_served(checkpoint, before);
    } else {
      resumed = resumed_state(checkpoint, before, numbers);
    }
  } else if (is_served(before)) {
    take_from_servers(checkpoint, before, numbers);
  } else {
    restore_strategy(checkpoint, before, numbers);
  }
  keep_place_in_schedule();
  if (part) {
    strategy_numbers = numbers;
    if (!resumed) {
      to_share_out = std::move(found);
    }
  }
  return true;
}

void Trainer::Run::keep_place_in_schedule() {
  if (state.steps_per_epoch == steps_per_epoch || is_sandblaster(config)) {
    return;
  }
  const std::uint64_t step_samples =
      static_cast<std::uint64_t>(team.served != nullptr ? unit_samples(config) * units_of_step(config) : global_batch);
  const std::uint64_t place = state.epoch * steps_per_epoch + divide_up(state.position, step_samples);
  state.schedule_ahead = static_cast<std::int64_t>(place) - state.step;
  state.steps_per_epoch = steps_per_epoch;
}

void Trainer::Run::leave_out_what_is_done(Sampler& sampler) const {
  if (const std::uint64_t settled = ledger.settled(); settled > 0 && settled == state.position) {
    const std::vector<PositionRun> done = settled_positions(sampler, state.epoch, ledger);
    if (done.size() > 1 || done.front().first > 0) {
      sampler.put_first(state.epoch, done);
    }
  }
  for (const EpochProgress& epoch : later_epochs) {
    put_first(sampler, epoch);
  }
}

void Trainer::Run::begin_epoch() {
  ++state.epoch;
  state.position = 0;
  state.epoch_sums = {};
  if (!later_epochs.empty() && later_epochs.front().number == state.epoch) {
    take_up(later_epochs.front());
    later_epochs.erase(later_epochs.begin());
    state.schedule_ahead += static_cast<std::int64_t>(
        divide_up(state.position, static_cast<std::uint64_t>(global_batch)));  // steps that need not be made
  }
}

}  // namespace distbelief
