// What a worker does in a run through parameter servers.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <span>

#include "base/clock.h"
#include "strategy/downpour.h"
#include "strategy/hogwild_downpour.h"
#include "strategy/pace.h"
#include "train/copy_leases.h"
#include "train/evaluate.h"
#include "train/leased_batches.h"
#include "train/trainer_run.h"

namespace distbelief {
namespace {

constexpr std::int64_t kLeasesAnEpoch = 8;  // of each worker, at least
constexpr std::int64_t kMostUnitsOfALease = 32;

}  // namespace

RunSummary Trainer::Run::work(ServedLinks& links, const Sampler& sampler, const Working& working,
                              const std::function<bool()>& stop_requested) {
  TrainingState& place = working.place;
  const ServedTeam& served = *team.served;
  RunSummary summary;
  summary.status = "finished";
  team.activity->begin(WorkerActivity::Kind::meeting, place.step);
  const UnitExchange::Options exchange = {.fetch_every = static_cast<int>(config.n_fetch),
                                          .prefetch = prefetches(config, config.n_fetch),
                                          .whole_steps = is_synchronous(config),
                                          .patience = team.patience,
                                          .agree = {},
                                          .fetched = {}};
  std::unique_ptr<ServedStrategy> worker;
  if (has_hogwild_workers(config)) {
    worker = std::make_unique<HogwildDownpour>(
        working.replica, *rule, links.worker(), exchange,
        HogwildLanes::Options{.threads = replica_options.threads, .batch = batch_per_worker(config)});
  } else {
    worker = std::make_unique<Downpour>(working.replica, *rule, links.worker(), in_copy(exchange));
  }
  const std::int64_t unit = unit_samples(config);
  const bool adaptive = config.adaptive == "on";
  const auto samples = static_cast<std::int64_t>(data.train->size());
  const std::int64_t most_units =
      std::clamp<std::int64_t>(samples / (unit * served.copies() * kLeasesAnEpoch), 1, kMostUnitsOfALease);
  Pace pace({.most_batches = static_cast<int>(most_units), .most_units_of_lease = most_units});
  std::optional<CopyLeases> of_copy;
  if (part) {
    of_copy.emplace(*served.leases, *part_links);
  }
  LeasedBatches batches(*data.train, sampler, of_copy ? *of_copy : *served.leases,
                        {.batch = batch_per_worker(config),
                         .batches_per_unit = config.n_push,
                         .units_per_lease = adaptive ? 1 : most_units,
                         .loader_threads = loader_threads(config),
                         .inherited = [&](const UnitReport& done) {
                           return links.worker().report(done, "", Clock::now() + team.patience).outcome.ok();
                         }});
  StepReport report = worker->join();
  const auto begin = Clock::now();
  LossSums sums;
  const auto spent_so_far = [&] {
    return StepTimes{.computed = team.activity->compute().seconds(),
                     .loaded = batches.wait_seconds() - batches.lease_seconds(),
                     .linked = worker->exchange().wait_seconds()};
  };
  std::int64_t told = place.step;  ///< steps that chaos has heard of
  while (report.outcome == StepReport::Outcome::stepped || report.outcome == StepReport::Outcome::end_of_epoch) {
    if (report.outcome == StepReport::Outcome::end_of_epoch && batches.finished()) {
      break;
    }
    if (report.stop) {
      report.outcome = StepReport::Outcome::stepped;  // also while it waited for samples
      break;
    }
    if (report.outcome == StepReport::Outcome::end_of_epoch && served.leader_left && served.leader_left()) {
      report = {.outcome = StepReport::Outcome::group_lost,
                .culprit = fmt::format("the {} that leads is gone", served.kind_of_server())};
      break;
    }
    Pace::Times times = {
        .all = seconds_since(begin), .links = worker->exchange().wait_seconds(), .leases = batches.lease_seconds()};
    if (adaptive && part) {  // all workers of a copy keep the same pace
      part_links->share_from_first(std::as_writable_bytes(std::span(&times, 1)));
    }
    if (adaptive && pace.note(times)) {
      batches.set_amounts(pace.units_of_lease(), pace.batches());
      worker->exchange().set_exchange(pace.batches(), prefetches(config, pace.batches()));
    }
    team.activity->begin(WorkerActivity::Kind::stepping, place.step);
    const StepTimes before = spent_so_far();
    const SampleRun& last = batches.unit().samples;
    if (team.chaos != nullptr) {
      const double share = static_cast<double>(last.epoch * samples + last.first + last.count) /
                           static_cast<double>(std::max<std::int64_t>(samples * config.epochs, 1));
      // It hears of every step, also where several were made together; of one that was refused once more.
      for (std::int64_t step = std::min(told, place.step) + 1; step <= place.step + 1; ++step) {
        team.chaos->before_step({step, share}, team.activity->compute(), stop_requested);
      }
      told = place.step + 1;
    }
    const auto update = static_cast<std::uint64_t>(last.epoch) * steps_per_epoch +
                        static_cast<std::uint64_t>(last.first / (unit * units_of_step(config)));
    report = worker->step(batches, {.update = update_options(update), .stop = stop_requested()});
    report.stop = report.stop || (report.outcome == StepReport::Outcome::end_of_epoch && stop_requested());
    agree_in_copy(report);
    if (report.outcome == StepReport::Outcome::stepped && report.sums.rows > 0) {
      place.step += report.updates;
      const StepTimes now = spent_so_far();
      team.activity->spent({.steps = report.updates,
                            .computed = now.computed - before.computed,
                            .loaded = std::max(0.0, now.loaded - before.loaded),
                            .linked = now.linked - before.linked});
      sums += report.sums;
      const double seconds = seconds_since(begin);
      working.observer.stepped({.epoch = batches.epoch() + 1,
                                .epochs = config.epochs,
                                .step = place.step,
                                .steps = place.step,
                                .loss = mean_loss(sums),
                                .accuracy = std::nullopt,
                                .samples_per_second = seconds > 0 ? static_cast<double>(sums.rows) / seconds : 0});
    }
  }
  place.epoch = static_cast<std::uint64_t>(batches.epoch());
  if (report.outcome == StepReport::Outcome::stepped && report.stop) {
    summary.status = "interrupted";
    report = worker->settle(batches);
  }
  if (!went_on(report, place, summary) && summary.status == "diverged") {
    const bool computed = !std::isfinite(report.sums.loss);  // and not a parameter of a server
    worker->exchange().tell_trouble(batches, summary.problem, computed ? std::optional(batches.unit()) : std::nullopt);
  }
  if (report.outcome != StepReport::Outcome::group_lost) {
    (void)worker->exchange().rest();
  }
  team.activity->begin(WorkerActivity::Kind::ending, place.step);
  place.train_seconds = seconds_since(begin);
  summary.loader_wait_seconds = batches.wait_seconds();
  return summary;
}

}  // namespace distbelief
