#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "metrics/format.h"
#include "strategy/step_exchange.h"
#include "train/evaluate.h"
#include "train/link_watch.h"
#include "train/trainer_run.h"

namespace distbelief {
namespace {

constexpr std::uint64_t kIterationsToCheckpoint = 10;
constexpr std::size_t kLastRows = 16;

/// The loader's batches with the audit around them.
class AuditedBatches : public BatchStream {
 public:
  using Doing = std::function<void(WorkerActivity::Kind)>;
  AuditedBatches(Loader& loader, SampleLedger& ledger, Doing doing)
      : loader_(loader), ledger_(ledger), doing_(std::move(doing)) {}
  const Batch* next() override {
    doing_(WorkerActivity::Kind::loading);
    const Batch* batch = loader_.next();
    doing_(WorkerActivity::Kind::stepping);
    if (batch != nullptr) {
      ledger_.leased(batch->ids);
    }
    return batch;
  }
  bool take(Batch& batches, std::int64_t most) override {
    const bool more = loader_.take(batches, most);
    if (more) {
      ledger_.leased(batches.ids);
    }
    return more;
  }
  void leased_by_others(std::span<const std::uint64_t> ids) override { ledger_.leased(ids); }
  void applied(std::span<const std::uint64_t> ids) override { ledger_.applied(ids); }
  void dropped(std::span<const std::uint64_t> ids) override { ledger_.dropped(ids); }

 private:
  Loader& loader_;
  SampleLedger& ledger_;
  const Doing doing_;
};

/// How a run ends for a worker without which the others go on, and for one that goes on in another place.
constexpr const char* kGivenUp = "given up";
constexpr const char* kGoesBack = "goes back";

StepReport report_of(const Outcome& outcome) { return outcome.ok() ? StepReport{} : lost_report(outcome); }

}  // namespace

double Trainer::Run::epochs_done() const {
  return static_cast<double>(state.epoch) +
         static_cast<double>(state.position) / static_cast<double>(data.train->size());
}

void Trainer::Run::log(const std::vector<std::pair<std::string, double>>& values) {
  const MetricsRow row = {.step = state.step, .epoch = epochs_done(), .time = state.train_seconds, .values = values};
  if (!team.leads()) {
    ++state.metrics_rows;
    last_rows.emplace_back(state.metrics_rows, row);
    if (last_rows.size() > kLastRows) {
      last_rows.pop_front();
    }
    return;
  }
  std::string told;
  try {
    metrics->append(row);
    events->scalars(state.step, wall_clock(), values);
    told = metrics_trouble.succeeded("metrics are");
  } catch (const FileError& error) {
    told = metrics_trouble.failed(fmt::format("no metrics of step {}", state.step), error.what(),
                                  "without them until they can be written");
  }
  state.metrics_rows = metrics->rows();
  if (!told.empty()) {
    observer.note(told);
  }
}

void Trainer::Run::log_steps(double seconds) {
  hear_of_checkpoints(false);
  const LossSums& sums = state.logged_sums;
  std::vector<std::pair<std::string, double>> values = {{"train_loss", mean_loss(sums)}};
  if (data.train->spec().classes > 0) {
    values.emplace_back("train_accuracy", accuracy(sums));
  }
  values.emplace_back("learning_rate", update_options(state.scheduled(state.step - 1)).rate);
  if (seconds > 0) {
    values.emplace_back("samples_per_second", static_cast<double>(sums.rows) / seconds);
  }
  log(values);
  state.logged_sums = {};
}

Outcome Trainer::Run::count_sent_bytes() {
  auto sent = static_cast<double>(team.group == nullptr ? 0 : team.group->fabric().sent_bytes());
  Outcome outcome = team.sum(sent);
  if (!sent_before) {
    sent_before = state.sent_bytes;
  }
  const std::uint64_t bytes =
      *sent_before + (team.served != nullptr ? served_bytes() : static_cast<std::uint64_t>(sent));
  state.sent_bytes = std::max(state.sent_bytes, bytes);  // of the dead nobody knows any more
  return outcome;
}

Outcome Trainer::Run::end_epoch(double epoch_seconds, bool& enough) {
  const bool classes = data.train->spec().classes > 0;
  EpochReport report;
  report.epoch = static_cast<std::int64_t>(state.epoch) + 1;
  report.train_loss = mean_loss(state.epoch_sums);
  report.train_accuracy = accuracy(state.epoch_sums);
  report.samples_per_second = epoch_seconds > 0 ? static_cast<double>(state.epoch_sums.rows) / epoch_seconds : 0;
  Outcome outcome = count_sent_bytes();
  const SampleAudit audit = served_audit ? *served_audit : ledger.total();
  std::vector<std::pair<std::string, double>> values = {{"epoch_train_loss", report.train_loss},
                                                        {"samples", static_cast<double>(audit.applied)},
                                                        {"sent_bytes", static_cast<double>(state.sent_bytes)}};
  if (state.logged_at <= state.epoch_began && report.samples_per_second > 0) {
    values.emplace_back("samples_per_second", report.samples_per_second);  // no row of steps has told of this epoch
  }
  const auto measure = [&](const Dataset& set, const std::string& name, std::optional<double>& loss,
                           std::optional<double>& right) {
    doing(WorkerActivity::Kind::evaluating);
    // As many at a time as in training: there is memory for those.
    const std::int64_t rows = (worker_batch + replica_options.micro_batches - 1) / replica_options.micro_batches;
    LossSums sums = evaluate(*replica, set, rows, team.replica(), team.replicas());
    if (outcome.ok()) {
      doing(WorkerActivity::Kind::gathering);
      outcome = team.sum(sums);
    }
    loss = mean_loss(sums);
    values.emplace_back(name + "_loss", *loss);
    if (classes) {
      right = accuracy(sums);
      values.emplace_back(name + "_accuracy", *right);
    }
  };
  std::optional<double> score;
  if (data.validation != nullptr) {
    measure(*data.validation, "validation", report.validation_loss, report.validation_accuracy);
    score = classes ? *report.validation_accuracy : -*report.validation_loss;
  }
  if (data.test != nullptr) {
    measure(*data.test, "test", report.test_loss, report.test_accuracy);
  }
  if (!outcome.ok()) {
    return outcome;
  }
  ledger.close_epoch();
  begin_epoch();
  state.epoch_began = state.train_seconds;
  log(values);

  if (score) {
    report.best = *score > state.best_score;
    if (report.best) {
      state.best_score = *score;
      state.best_step = state.step;
    }
    state.epochs_since_best = report.best ? 0 : state.epochs_since_best + 1;
  }
  state.last = report;
  // L-BFGS has many short iterations, and a state of many vectors.
  const bool due = !is_sandblaster(config) || state.epoch % kIterationsToCheckpoint == 0;
  if ((config.checkpoint_every == 0 && due && !has_checkpoint()) || report.best) {
    write_checkpoint(report.best ? score : std::nullopt);  // one that is only as good does not push the best out
  }
  observer.epoch_ended(report);
  enough = config.early_stop > 0 && state.epochs_since_best >= config.early_stop;
  if (enough && team.leads()) {
    const char* round = is_sandblaster(config) ? "iteration" : "epoch";
    observer.note(fmt::format("stopped early after {0} {1}: no better for {2} {0}{3}; the model is that of {0} {4}",
                              round, report.epoch, state.epochs_since_best, state.epochs_since_best == 1 ? "" : "s",
                              report.epoch - state.epochs_since_best));
  }
  return {};
}

bool Trainer::Run::went_on(const StepReport& report, const TrainingState& place, RunSummary& summary) const {
  const std::string when = fmt::format("at step {} (epoch {})", place.step + report.updates, place.epoch + 1);
  if (report.outcome == StepReport::Outcome::group_lost) {
    summary.status = "lost";
    summary.problem = fmt::format("{}; noticed {}", team.explain ? team.explain(report.culprit) : report.culprit, when);
    return false;
  }
  if (report.outcome == StepReport::Outcome::diverged) {
    summary.status = "diverged";
    if (std::isfinite(report.sums.loss)) {
      summary.problem = fmt::format("{} is not finite {}, though the loss is {:.4g}", report.culprit, when,
                                    unsigned_nan(mean_loss(report.sums)));
    } else {
      summary.problem = fmt::format("the loss is {} {}; first seen in {}", unsigned_nan(report.sums.loss), when,
                                    report.culprit.empty() ? "the loss" : report.culprit);
    }
    return false;
  }
  return true;
}

StepReport Trainer::Run::settle(BatchStream& batches) {
  StepReport report = agreed([&] { return strategy->settle(batches); });
  state.epoch_sums += report.sums;
  state.logged_sums += report.sums;
  if (report.outcome == StepReport::Outcome::stepped) {
    remember_common();
  }
  return report;
}

std::int64_t Trainer::Run::updates_until_something_is_due() const {
  if (team.chaos != nullptr) {
    return 1;
  }
  const auto until_next = [this](std::int64_t every) { return every - state.step % every; };
  const std::int64_t log = until_next(config.log_every);
  return config.checkpoint_every > 0 ? std::min(log, until_next(config.checkpoint_every)) : log;
}

RunSummary Trainer::Run::train(const std::function<bool()>& stop_requested) {
  RunSummary summary;
  summary.status = "finished";
  doing(WorkerActivity::Kind::meeting);
  const std::string who = team.late ? "" : join_team();
  const auto goes = [&] {  // this worker has no part in it any more, and nothing to write
    summary.status = left ? "left" : given_up ? kGivenUp : roll_back ? kGoesBack : summary.status;
    summary.steps = state.step;
    return given_up || roll_back;
  };
  if ((team.late && !regroup(team.group->epoch() - 1)) || (!who.empty() && !regroup(team.group->epoch()))) {
    if (goes()) {
      return summary;
    }
    (void)went_on({.outcome = StepReport::Outcome::group_lost, .culprit = who}, state, summary);
    write_results(summary);
    return summary;
  }
  joined = true;
  remember_common();
  Sampler sampler(data.train->size(), config.seed, true);
  leave_out_what_is_done(sampler);
  const auto end_epoch_number = static_cast<std::uint64_t>(config.epochs);
  double loader_wait_seconds = 0;
  std::optional<Loader> loader;
  std::optional<AuditedBatches> batches;
  const auto open_loader = [&] {
    loader_wait_seconds += loader ? loader->wait_seconds() : 0;
    batches.reset();
    loader.emplace(*data.train, sampler,
                   LoaderOptions{.batch = global_batch,
                                 .threads = loader_threads(config),
                                 .epoch = state.epoch,
                                 .position = state.position,
                                 .end_epoch = end_epoch_number,
                                 .part = team.replica(),
                                 .parts = team.replicas(),
                                 .shares = shares});
    batches.emplace(*loader, ledger, [this](WorkerActivity::Kind kind) { doing(kind); });
  };
  settle_shares();
  open_loader();
  const std::uint64_t host = host_number();
  StepCosts costs;  // of the last step
  LinkWatch links;

  auto mark = Clock::now();  // training time runs from here; evaluation and checkpoints are not counted
  const auto pause_clock = [&] {
    state.train_seconds += seconds_since(mark);
    mark = Clock::now();
  };
  StepReport report = {.stop = team.size() == 1 && stop_requested()};
  StepReport trouble;  // why a turn did not end well
  const auto is_well = [&](StepReport came) {
    if (came.outcome == StepReport::Outcome::stepped) {
      return true;
    }
    trouble = std::move(came);
    return false;
  };
  const auto count_step = [&](const StepReport& made) {
    state.step += made.updates;
    state.position = loader->position();
    state.epoch_sums += made.sums;
    state.logged_sums += made.sums;
    if (rebalance(made.costs)) {
      open_loader();
    }
    if (state.step % config.log_every == 0) {
      pause_clock();
      log_steps(state.train_seconds - state.logged_at);
      state.logged_at = state.train_seconds;
      mark = Clock::now();
    }
  };
  finish_prepared_step = [&] { count_step(strategy->finish_prepared(*batches)); };
  enum class Turn : std::uint8_t { well, over, in_trouble };
  const auto turn = [&] {
    if (report.stop) {
      if (!is_well(settle(*batches))) {
        return Turn::in_trouble;
      }
      summary.status = "interrupted";
      return Turn::over;
    }
    const std::uint64_t total = steps_per_epoch * end_epoch_number;
    const std::uint64_t scheduled = state.scheduled(state.step);
    const auto rate_of = [&, scheduled](std::int64_t update) {
      return update_options(scheduled + static_cast<std::uint64_t>(update)).rate;
    };
    const UpdateOptions update = update_options(scheduled);
    doing(WorkerActivity::Kind::stepping);
    const StepMeter meter(team.activity->compute(), *loader);
    if (team.chaos != nullptr) {
      const double share = total > 0 ? static_cast<double>(scheduled) / static_cast<double>(total) : 0;
      team.chaos->before_step({state.step + 1, share}, team.activity->compute(), stop_requested);
    }
    report = agreed([&] {
      return strategy->step(*batches, {.update = update,
                                       .stop = stop_requested(),
                                       .regroup = (team.newest && team.newest() > team.group->epoch()) ||
                                                  (team.leaving && team.leaving()),
                                       .most_updates = updates_until_something_is_due(),
                                       .rate_of = rate_of,
                                       .costs = costs});
    });
    costs = meter.costs(host);
    if (costs.rows > 0) {
      team.activity->spent({.steps = report.updates,
                            .computed = static_cast<double>(costs.computed) * 1e-9,
                            .loaded = static_cast<double>(costs.loaded) * 1e-9,
                            .linked = links.held_up()});
    }
    if (report.outcome == StepReport::Outcome::end_of_epoch) {
      if (!is_well(settle(*batches))) {
        return Turn::in_trouble;
      }
      pause_clock();
      bool enough = false;
      const bool ended =
          is_well(agreed([&] { return report_of(end_epoch(state.train_seconds - state.epoch_began, enough)); }));
      mark = Clock::now();
      if (enough) {
        summary.status = "stopped early";
      }
      return !ended ? Turn::in_trouble : enough ? Turn::over : Turn::well;
    }
    const bool goes_on = is_well(report);
    if (!goes_on && !report.completed) {
      return Turn::in_trouble;
    }
    count_step(report);
    if (!goes_on) {
      trouble.updates = 0;  // the step is made
      return Turn::in_trouble;
    }
    if (!part && links.heard(report.costs)) {
      if (!is_well(report_of(links.measure(*team.across(), Clock::now() + team.patience)))) {
        trouble.updates = 0;
        return Turn::in_trouble;
      }
    }
    if (config.checkpoint_every > 0 && state.step % config.checkpoint_every == 0) {
      if (!is_well(settle(*batches))) {
        return Turn::in_trouble;
      }
      pause_clock();
      const bool written = is_well(agreed([&] {
        write_checkpoint(std::nullopt);
        return StepReport{};
      }));
      if (!written) {
        return Turn::in_trouble;
      }
      mark = Clock::now();
    }
    if (report.regroup && !strategy->in_step() && !is_well(settle(*batches))) {
      return Turn::in_trouble;
    }
    const double elapsed = state.train_seconds - state.epoch_began + seconds_since(mark);
    observer.stepped(
        {.epoch = static_cast<std::int64_t>(state.epoch) + 1,
         .epochs = config.epochs,
         .step = static_cast<std::int64_t>(state.position) / global_batch,
         .steps = static_cast<std::int64_t>(steps_per_epoch),
         .loss = mean_loss(state.epoch_sums),
         .accuracy = data.train->spec().classes > 0 ? std::optional(accuracy(state.epoch_sums)) : std::nullopt,
         .samples_per_second = elapsed > 0 ? static_cast<double>(state.position) / elapsed : 0});
    return Turn::well;
  };
  if (!ending.empty()) {
    summary.status = ending;  // as it had for the others when this member came
  }
  while (ending.empty() && state.epoch < end_epoch_number) {
    const Turn went = turn();
    if (went == Turn::over) {
      break;
    }
    std::uint32_t after = team.group == nullptr ? 0 : team.group->epoch();
    if (went == Turn::well) {
      remember_common();
      // Who is together now and then only is so at the end of an epoch, whoever knows of a change.
      const bool may_change = team.newest && state.epoch < end_epoch_number &&
                              (report.regroup || (!strategy->in_step() && state.position == 0));
      Changes changes = {.newest = after};
      if (!may_change || is_well(report_of(agree_on_changes(changes)))) {
        if (changes.newest == after && changes.leavers.empty()) {
          continue;
        }
        if (leaves(changes)) {
          pause_clock();
          return leave_team(changes);
        }
        let_leave(changes);
        after = changes.newest > after ? changes.newest - 1 : after;
        trouble = {.outcome = StepReport::Outcome::group_lost, .culprit = "the members that came cannot be reached"};
      }
    }
    pause_clock();
    if (trouble.outcome == StepReport::Outcome::group_lost && regroup(after)) {
      if (!ending.empty()) {
        summary.status = ending;  // another member has heard so before the loss
        break;
      }
      settle_shares();
      open_loader();
      report = {};
      costs = {};
      links = {};
      continue;
    }
    if (goes()) {
      return summary;
    }
    (void)went_on(trouble, state, summary);
    break;
  }
  pause_clock();
  doing(WorkerActivity::Kind::ending);

  summary.loader_wait_seconds = loader_wait_seconds + loader->wait_seconds();
  summary.samples_per_second =
      state.train_seconds > 0 ? static_cast<double>(ledger.total().applied) / state.train_seconds : 0;
  ending = summary.status == "lost" ? "" : summary.status;
  for (;;) {
    std::optional<ExchangeLost> part_lost;
    try {
      write_results(summary);
      if (summary.status == "lost" || !team.next || ended_together(summary)) {
        break;
      }
    } catch (const ExchangeLost& lost) {
      part_lost = lost;
    }
    if (!regroup(team.group->epoch())) {
      if (!goes() && part_lost) {
        (void)went_on(lost_report(part_lost->outcome()), state, summary);
        if (team.leads()) {
          write_file_atomically(folder->summary(), summary_text(summary, config));
        }
      }
      break;
    }
  }  // what is written then is of whoever leads
  return summary;
}

}  // namespace distbelief
