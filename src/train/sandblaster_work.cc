// What a worker of a Sandblaster run does: portions, as long as there are some.
#include <fmt/format.h>

#include "base/clock.h"
#include "strategy/portion_worker.h"
#include "strategy/step_exchange.h"
#include "train/evaluate.h"
#include "train/portion_batches.h"
#include "train/trainer_run.h"

namespace distbelief {
namespace {

constexpr std::chrono::milliseconds kWaitForWork{20};  // between looks at whether it should stop
constexpr std::size_t kMostKeptBytes = std::size_t{1} << 30;

}  // namespace

RunSummary Trainer::Run::work_on_portions(ServedLinks& links, const Sampler& sampler, const Working& working,
                                          const std::function<bool()>& stop_requested) {
  TrainingState& place = working.place;
  const ServedTeam& served = *team.served;
  RunSummary summary;
  summary.status = "finished";
  PortionBatches batches(
      *data.train, sampler,
      {.batch = config.batch, .loader_threads = loader_threads(config), .most_kept_bytes = kMostKeptBytes});
  PortionWorker::Options options = {.patience = team.patience, .share = {}, .agree = {}, .fetched = {}};
  if (part) {
    options.asks = part_links->is_first();
    options.share = [this](PortionWorker::Told& told) {
      part_links->share_from_first(std::as_writable_bytes(std::span(&told, 1)));
    };
    const UnitExchange::Options copy = in_copy({});
    options.agree = copy.agree;
    options.fetched = copy.fetched;
  }
  PortionWorker worker(working.replica, links.worker(), std::move(options));
  const auto anybody = [&](bool here) { return part ? !part_links->all(!here) : here; };
  const auto began = Clock::now();
  LossSums sums;
  Outcome outcome;
  std::optional<Work> work;
  while (outcome.ok()) {
    team.activity->begin(WorkerActivity::Kind::gathering, place.step);
    outcome = worker.next(work, kWaitForWork);
    if (!outcome.ok() || (work && work->unit == 0)) {
      break;
    }
    if (anybody(stop_requested())) {
      summary.status = "interrupted";
      break;
    }
    if (!work) {
      if (anybody(served.leader_left && served.leader_left())) {
        outcome = {Outcome::Kind::peer_lost, served.leader(),
                   fmt::format("the {} that leads is gone", served.kind_of_server())};
      }
      continue;
    }
    team.activity->begin(WorkerActivity::Kind::stepping, place.step);
    const double computed = team.activity->compute().seconds();
    const double loaded = batches.wait_seconds();
    std::int64_t steps = 0;
    if (team.chaos != nullptr) {
      // Most iterations take one evaluation; how many all will take nobody knows.
      const double share = static_cast<double>(work->evaluation) / static_cast<double>(config.iterations);
      team.chaos->before_step({place.step + 1, share}, team.activity->compute(), stop_requested);
    }
    batches.want(work->samples);
    outcome = worker.begin(*work);
    while (const Batch* batch = outcome.ok() ? batches.next() : nullptr) {
      sums += worker.add(*batch);
      ++steps;
    }
    if (outcome.ok()) {
      outcome = worker.push(*work);
    }
    ++place.step;
    team.activity->spent({.steps = steps,
                          .computed = team.activity->compute().seconds() - computed,
                          .loaded = batches.wait_seconds() - loaded});
    const double seconds = seconds_since(began);
    working.observer.stepped({.epoch = static_cast<std::int64_t>(work->evaluation),
                              .epochs = static_cast<std::int64_t>(work->evaluation),
                              .step = place.step,
                              .steps = place.step,
                              .loss = mean_loss(sums),
                              .accuracy = std::nullopt,
                              .samples_per_second = seconds > 0 ? static_cast<double>(sums.rows) / seconds : 0});
  }
  if (outcome.ok()) {
    outcome = worker.settle();
  }
  if (!outcome.ok()) {
    (void)went_on(lost_report(outcome), place, summary);
  }
  team.activity->begin(WorkerActivity::Kind::ending, place.step);
  place.train_seconds = seconds_since(began);
  summary.loader_wait_seconds = batches.wait_seconds();
  return summary;
}

}  // namespace distbelief
