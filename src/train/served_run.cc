// A run through parameter servers: what a worker, a server and the leader do.
#include <fmt/format.h>

#include <cmath>
#include <thread>

#include "base/clock.h"
#include "params/schedule.h"
#include "strategy/downpour.h"
#include "train/evaluate.h"
#include "train/leased_batches.h"
#include "train/served_books.h"
#include "train/served_links.h"
#include "train/trainer_run.h"

namespace distbelief {
namespace {

constexpr std::chrono::milliseconds kLeaderTurn{10};
constexpr std::int64_t kLeasesAnEpoch = 8;  // of each worker, at least
constexpr std::int64_t kMostUnitsOfALease = 32;

UpdateOptions update_options(const RunConfig& config, const Schedule& schedule, std::uint64_t update,
                             std::uint64_t updates) {
  return {.rate = schedule.rate(std::min(update, updates > 0 ? updates - 1 : 0), updates),
          .weight_decay = static_cast<float>(config.weight_decay),
          .clip_value = static_cast<float>(config.clip_value)};
}

}  // namespace

RunSummary Trainer::Run::train_served(const std::function<bool()>& stop_requested) {
  const ServedTeam& served = *team.served;
  const std::uint64_t updates = steps_per_epoch * static_cast<std::uint64_t>(config.epochs);
  const Sampler sampler(data.train->size(), config.seed, true);
  ServedBooks books(sampler, {.first_epoch = static_cast<std::int64_t>(state.epoch),
                              .epochs = config.epochs,
                              .unit_samples = config.batch * config.n_push});
  ServedLinks::Heard heard;
  if (served.leads()) {
    heard = [&books](const RequestHead& request, const ReplyHead& reply, std::string_view words) {
      books.heard(request, reply, words);
    };
  }
  ServedLinks links(
      served, table, *rule, replica->values(),
      {.update = [&](std::uint64_t version) { return update_options(config, *schedule, version, updates); }}, heard);
  if (served.leads()) {
    return lead(links, books, stop_requested);
  }
  if (served.is_server()) {
    while (!served.leader_left()) {
      std::this_thread::sleep_for(kLeaderTurn);
    }
    RunSummary summary;
    summary.status = "finished";
    write_results(summary);
    return summary;
  }
  return work(links, sampler, stop_requested);
}

RunSummary Trainer::Run::work(ServedLinks& links, const Sampler& sampler, const std::function<bool()>& stop_requested) {
  const ServedTeam& served = *team.served;
  RunSummary summary;
  summary.status = "finished";
  doing(WorkerActivity::Kind::meeting);
  const bool prefetch = config.prefetch == "on" || (config.prefetch == "auto" && config.n_fetch > 1);
  Downpour downpour(*replica, *rule, links.client(),
                    {.fetch_every = static_cast<int>(config.n_fetch), .prefetch = prefetch, .patience = team.patience});
  const std::int64_t unit = config.batch * config.n_push;
  const auto samples = static_cast<std::int64_t>(data.train->size());
  LeasedBatches batches(*data.train, sampler, *served.leases,
                        {.batch = config.batch,
                         .batches_per_unit = config.n_push,
                         .units_per_lease = std::clamp<std::int64_t>(samples / (unit * served.workers * kLeasesAnEpoch),
                                                                     1, kMostUnitsOfALease),
                         .inherited = [&](const UnitReport& done) {
                           return links.client().report(done, "", Clock::now() + team.patience).outcome.ok();
                         }});
  const std::uint64_t updates = steps_per_epoch * static_cast<std::uint64_t>(config.epochs);
  StepReport report = downpour.join();
  const auto begin = Clock::now();
  LossSums sums;
  while (report.outcome == StepReport::Outcome::stepped || report.outcome == StepReport::Outcome::end_of_epoch) {
    if (report.stop || (report.outcome == StepReport::Outcome::end_of_epoch && batches.finished())) {
      break;
    }
    if (report.outcome == StepReport::Outcome::end_of_epoch && stop_requested()) {
      report = {.stop = true};
      break;  // while it waited for samples
    }
    doing(WorkerActivity::Kind::stepping);
    if (team.chaos != nullptr) {
      team.chaos->before_step(state.step + 1, team.activity->compute(), stop_requested);
    }
    const UnitSamples& last = batches.unit().samples;
    const auto update =
        static_cast<std::uint64_t>(last.epoch) * steps_per_epoch + static_cast<std::uint64_t>(last.first / unit);
    report = downpour.step(batches,
                           {.update = update_options(config, *schedule, update, updates), .stop = stop_requested()});
    if (report.outcome == StepReport::Outcome::stepped && report.sums.rows > 0) {
      state.step += 1;
      sums += report.sums;
      const double seconds = seconds_since(begin);
      observer.stepped({.epoch = batches.epoch() + 1,
                        .epochs = config.epochs,
                        .step = state.step,
                        .steps = state.step,
                        .loss = mean_loss(sums),
                        .accuracy = std::nullopt,
                        .samples_per_second = seconds > 0 ? static_cast<double>(sums.rows) / seconds : 0});
    }
  }
  state.epoch = static_cast<std::uint64_t>(batches.epoch());
  if (report.outcome == StepReport::Outcome::stepped && report.stop) {
    summary.status = "interrupted";
    report = downpour.settle(batches);
  }
  if (!went_on(report, summary) && summary.status == "diverged") {
    downpour.tell_trouble(batches, summary.problem);
  }
  doing(WorkerActivity::Kind::ending);
  state.train_seconds = seconds_since(begin);
  summary.loader_wait_seconds = batches.wait_seconds();
  write_results(summary);
  return summary;
}

RunSummary Trainer::Run::lead(ServedLinks& links, ServedBooks& books, const std::function<bool()>& stop_requested) {
  const ServedTeam& served = *team.served;
  RunSummary summary;
  summary.status = "finished";
  served.plan_leases({.samples_per_epoch = static_cast<std::int64_t>(data.train->size()),
                      .first_epoch = static_cast<std::int64_t>(state.epoch),
                      .epochs = config.epochs});
  const auto begin = Clock::now();
  const auto samples = static_cast<std::uint64_t>(data.train->size());
  std::int64_t logged_step = 0;
  std::uint64_t applied_samples = 0;
  Outcome fetched;
  const auto snapshot = [&] {
    links.client().begin_fetch();
    fetched = links.client().wait_fetched(Clock::now() + team.patience);
    links.client().take(replica->values());
    return fetched.ok();
  };
  bool enough = false;
  while (state.epoch < static_cast<std::uint64_t>(config.epochs) && !enough && fetched.ok()) {
    const bool alone = served.workers_left() == 0;  // asked first: what they said before they left is in the books
    const ServedBooks::News news = books.take();
    state.step = static_cast<std::int64_t>(news.units);
    state.position = news.samples - state.epoch * samples;
    state.logged_sums += news.sums;
    state.train_seconds = seconds_since(begin);
    if (state.step - logged_step >= config.log_every) {
      log_steps(state.train_seconds - state.logged_at);
      state.logged_at = state.train_seconds;
      logged_step = state.step;
    }
    for (const ServedBooks::ClosedEpoch& closed : news.closed) {
      state.epoch_sums = closed.sums;
      if (!snapshot()) {
        break;
      }
      if (const Outcome outcome = end_epoch(state.train_seconds - state.epoch_began, enough); !outcome.ok() || enough) {
        break;
      }
      state.position = news.samples - state.epoch * samples;
    }
    if (!news.trouble.empty()) {
      summary.status = "diverged";
      summary.problem = news.trouble;
      break;
    }
    if (alone && news.closed.empty()) {
      summary.status = stop_requested() ? "interrupted" : "lost";
      const std::string seen = "all workers are gone";
      summary.problem = stop_requested() ? "" : team.explain ? team.explain(seen) : seen;
      break;
    }
    applied_samples = news.samples;
    const LossSums open = books.open_sums();
    if (news.sums.rows > 0 && open.rows > 0 && state.epoch < static_cast<std::uint64_t>(config.epochs)) {
      const double elapsed = state.train_seconds - state.epoch_began;
      observer.stepped({.epoch = static_cast<std::int64_t>(state.epoch) + 1,
                        .epochs = config.epochs,
                        .step = static_cast<std::int64_t>(state.position) / (config.batch * config.n_push),
                        .steps = static_cast<std::int64_t>(steps_per_epoch),
                        .loss = mean_loss(open),
                        .accuracy = data.train->spec().classes > 0 ? std::optional(accuracy(open)) : std::nullopt,
                        .samples_per_second = elapsed > 0 ? static_cast<double>(open.rows) / elapsed : 0});
    }
    std::this_thread::sleep_for(kLeaderTurn);
  }
  if (!fetched.ok()) {
    (void)went_on({.outcome = StepReport::Outcome::group_lost, .culprit = fetched.reason}, summary);
  } else if (enough) {
    summary.status = "stopped early";
  }
  links.server().end();
  state.train_seconds = seconds_since(begin);
  while (served.workers_left() > 0) {  // each hears with its next push that training is over
    std::this_thread::sleep_for(kLeaderTurn);
  }
  books.close_all();
  served_audit = books.total();
  staleness = books.staleness();
  summary.samples_per_second = state.train_seconds > 0 ? static_cast<double>(applied_samples) / state.train_seconds : 0;
  doing(WorkerActivity::Kind::ending);
  write_results(summary);
  return summary;
}

}  // namespace distbelief
