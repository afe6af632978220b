// What the leader of a run through parameter servers does: it keeps the books, evaluates, watches, and ends the run.
#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "metrics/format.h"
#include "server/state_bytes.h"
#include "train/divergence_guard.h"
#include "train/evaluate.h"
#include "train/trainer_run.h"

namespace distbelief {
namespace {

constexpr std::chrono::milliseconds kLeaderTurn{10};
constexpr int kWindowsAnEpoch = 10;  // of the guard
constexpr int kLeastUnitsOfAWindow = 20;
constexpr float kSlower = 0.5F;
/// For workers that are asked to stop, and finish a step first.
constexpr std::chrono::seconds kStopPatience{10};

constexpr std::size_t kNumbersOfAPlan = 6;
constexpr std::size_t kNumbersOfALease = 5;

std::vector<std::uint64_t> plan_numbers(const LeaseTable::Options& plan) {
  const auto bits = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
  std::vector<std::uint64_t> numbers = {
      bits(plan.samples_per_epoch), bits(plan.first_epoch), bits(plan.epochs), plan.first_id,
      bits(plan.first_position),    bits(plan.warm_samples)};
  for (const Lease& lease : plan.returned) {
    numbers.insert(numbers.end(), {lease.id, bits(lease.epoch), bits(lease.first), bits(lease.count), lease.next_push});
  }
  return numbers;
}

LeaseTable::Options plan_of(const std::vector<std::uint64_t>& numbers) {
  const auto at = [&](std::size_t i) { return static_cast<std::int64_t>(numbers.at(i)); };
  LeaseTable::Options plan = {.samples_per_epoch = at(0),
                              .first_epoch = at(1),
                              .epochs = at(2),
                              .first_id = numbers.at(3),
                              .first_position = at(4),
                              .warm_samples = at(5)};
  for (std::size_t i = kNumbersOfAPlan; i + kNumbersOfALease <= numbers.size(); i += kNumbersOfALease) {
    plan.returned.push_back(
        {.id = numbers[i], .epoch = at(i + 1), .first = at(i + 2), .count = at(i + 3), .next_push = numbers[i + 4]});
  }
  return plan;
}

}  // namespace

struct Trainer::Run::Leading {
  Run& run;
  LeaderLinks& leader;
  ServedBooks& books;
  RunSummary& summary;
  DivergenceGuard guard;
  Outcome servers;         ///< whether all of them answer
  bool enough = false;     ///< training should stop early
  double last_closed = 0;  ///< an epoch was, in seconds of training
  std::int64_t logged_step = 0;
  std::uint64_t applied_samples = 0;
  StalenessCounts logged_staleness = {};

  bool goes_on() const {
    return run.state.epoch < static_cast<std::uint64_t>(run.config.epochs) && !enough && servers.ok() &&
           summary.status == "finished";
  }

  void order(RequestHead::Kind kind, float scale) {
    const LeaderLinks::Report report = leader.order(kind, scale, Clock::now() + run.team.patience);
    servers = report.outcome;
    if (report.status == ReplyHead::Status::nonfinite) {
      diverged("a parameter is not finite");
    }
  }

  /// Servers begin where the run stood, or with what only the leader has read. What is to be leased comes of that.
  LeaseTable::Options begin() {
    const Clock::time_point deadline = Clock::now() + run.team.patience;
    const std::int64_t unit = unit_samples(run.config);
    const std::int64_t warm = run.warm_units() * unit;
    if (run.resumed) {
      return begin_as_another();
    }
    if (!run.restored) {
      if (run.initialised) {
        servers = leader.set_values(run.replica->values(), deadline).outcome;
      }
      return {.samples_per_epoch = static_cast<std::int64_t>(run.data.train->size()),
              .epochs = run.config.epochs,
              .warm_samples = warm};
    }
    const ServedState restored = *std::exchange(run.restored, {});
    books.restore(restored.books, restored.source);
    StateReader reader(restored.leader, restored.source);
    visit_own_state(reader);
    std::vector<SavedLeases> leases;
    for (const std::string& state : restored.servers) {
      leases.push_back(saved_leases(state, restored.source));
    }
    const LeaderLinks::Report report = leader.restore(restored.servers, deadline);
    servers = report.outcome;
    if (report.status == ReplyHead::Status::damaged) {
      throw FileError(fmt::format("{}: expected the state of these servers: the optimizer is another, or it is damaged",
                                  restored.source));
    }
    LeaseTable::Options plan = books.go_on(leases);
    plan.warm_samples = std::max<std::int64_t>(0, warm - static_cast<std::int64_t>(books.total().applied));
    return plan;
  }

  /// Where a run of another kind stood, or one with other servers.
  LeaseTable::Options begin_as_another() {
    const ResumedState taken = std::move(*run.resumed);
    run.resumed.reset();
    const auto units = static_cast<std::uint64_t>(units_of_step(run.config));
    servers = leader
                  .set_state(taken.whole, *run.rule, run.state.scheduled(run.state.step) * units,
                             Clock::now() + run.team.patience)
                  .outcome;
    if (taken.rate_factor < 1 && servers.ok()) {
      run.rate_factor = taken.rate_factor;
      order(RequestHead::Kind::slow_down, static_cast<float>(taken.rate_factor));
    }
    LeaseTable::Options plan = books.begin_at(taken.progress, static_cast<std::uint64_t>(run.state.step) * units);
    plan.warm_samples = std::max<std::int64_t>(
        0, run.warm_units() * unit_samples(run.config) - static_cast<std::int64_t>(books.total().applied));
    return plan;
  }

  /// For write_checkpoint(): servers go on meanwhile, each block's state is of one moment, and the books of an earlier
  /// one.
  bool add_state(CheckpointState& saved) {
    order(RequestHead::Kind::mark, 0);
    saved.blobs[kBooksBlob] = books.save();
    StateWriter writer;
    visit_own_state(writer);
    saved.blobs[kLeaderBlob] = writer.take();
    run.served_audit = books.total();
    return servers.ok() && run.add_servers(leader, saved, servers);
  }

  void visit_own_state(StateVisitor& visitor) {
    guard.visit_state(visitor);
    visitor.real("rate_factor", run.rate_factor);
  }

  /// All that the next leader must know that is not in the books. `plan`: what it may have to say to the coordinator.
  std::string note(const std::optional<LeaseTable::Options>& plan) {
    std::map<std::string, std::vector<std::uint64_t>> numbers;
    if (plan) {
      numbers["plan"] = plan_numbers(*plan);
    }
    StateWriter writer;
    visit_own_state(writer);
    return run.leader_note(std::move(numbers), writer.take());
  }

  /// Goes on where another leader stood when it kept this.
  void take_over(const std::string& note) {
    const TakenOver taken = run.take_over_from(note);
    StateReader reader(taken.own, "what the leader before kept");
    visit_own_state(reader);
    if (const auto plan = taken.numbers.find("plan"); plan != taken.numbers.end()) {
      run.team.served->plan_leases(plan_of(plan->second), 0);
    }
    books.take_over(static_cast<std::int64_t>(run.state.epoch));
  }

  void checkpoint() {
    if (!run.has_checkpoint() && servers.ok() && snapshot()) {
      run.write_checkpoint(std::nullopt);
    }
  }

  void diverged(const std::string& why) {
    summary.status = "diverged";
    summary.problem = why;
  }

  bool snapshot() {
    servers = run.snapshot(leader);
    return servers.ok();
  }

  void take_in(const ServedBooks::News& news) {
    TrainingState& state = run.state;
    const auto now = Clock::now();
    const std::uint64_t samples = run.data.train->size();
    state.step = static_cast<std::int64_t>(news.units) / units_of_step(run.config);
    state.position = news.samples - state.epoch * samples;
    state.logged_sums += news.sums;
    applied_samples = news.samples;
    if (state.step - logged_step >= run.config.log_every) {
      run.log_steps(state.train_seconds - state.logged_at);
      state.logged_at = state.train_seconds;
      logged_step = state.step;
    }
    if (!news.trouble.empty()) {
      diverged(news.trouble);
    }
    for (const ServedBooks::ClosedEpoch& closed : news.closed) {
      state.epoch_sums = closed.sums;
      books.evaluated();
      if (closed.epoch + 1 == run.config.epochs) {
        order(RequestHead::Kind::flush, 0);  // nothing comes that it could wait for
      }
      if (!servers.ok() || !snapshot()) {
        return;
      }
      log_staleness();
      run.served_audit = books.total();
      // Workers went on while the epoch before was evaluated.
      const double waited = std::chrono::duration<double>(now - closed.at).count();
      const double closed_at = std::max(last_closed, state.train_seconds - waited);
      if (const Outcome outcome = run.end_epoch(closed_at - last_closed, enough); !outcome.ok() || enough) {
        return;
      }
      last_closed = closed_at;
      state.position = news.samples - state.epoch * samples;
    }
  }

  /// Of the units since the row before, how many were how old.
  void log_staleness() {
    const StalenessCounts now = books.staleness();
    const std::uint64_t units = now.count - logged_staleness.count;
    if (units == 0) {
      return;
    }
    std::vector<std::pair<std::string, double>> values = {
        {"staleness_mean", (now.sum - logged_staleness.sum) / static_cast<double>(units)},
        {"staleness_max", static_cast<double>(now.most)}};
    for (std::size_t i = 0; i < now.units.size(); ++i) {
      if (const std::uint64_t count = now.units[i] - logged_staleness.units[i]; count > 0) {
        values.emplace_back(fmt::format("staleness_{}", i), static_cast<double>(count));
      }
    }
    run.log(values);
    logged_staleness = now;
  }

  void watch_divergence(const LossSums& sums) {
    const std::optional<DivergenceGuard::Alarm> alarm = guard.watch(sums);
    if (!alarm || run.config.divergence_guard == "off" || !servers.ok()) {
      return;
    }
    order(RequestHead::Kind::slow_down, kSlower);
    run.rate_factor *= kSlower;
    run.observer.note(
        fmt::format("update {}: the loss has risen from {:.4g} to {:.4g}: all rates are halved from here on",
                    run.state.step, unsigned_nan(alarm->best), unsigned_nan(alarm->now)));
    run.log({{"rate_factor", run.rate_factor}});
  }

  void show_progress(const LossSums& fresh) {
    const LossSums open = books.open_sums();
    if (fresh.rows == 0 || open.rows == 0 || run.state.epoch >= static_cast<std::uint64_t>(run.config.epochs)) {
      return;
    }
    const double elapsed = run.state.train_seconds - last_closed;
    run.observer.stepped(
        {.epoch = static_cast<std::int64_t>(run.state.epoch) + 1,
         .epochs = run.config.epochs,
         .step = static_cast<std::int64_t>(run.state.position) / (unit_samples(run.config) * units_of_step(run.config)),
         .steps = static_cast<std::int64_t>(run.steps_per_epoch),
         .loss = mean_loss(open),
         .accuracy = run.data.train->spec().classes > 0 ? std::optional(accuracy(open)) : std::nullopt,
         .samples_per_second = elapsed > 0 ? static_cast<double>(open.rows) / elapsed : 0});
  }
};

std::optional<RunSummary> Trainer::Run::lead(ServedLinks& links, LeaderLinks& leader, ServedBooks& books,
                                             const std::optional<std::string>& note,
                                             const std::function<bool()>& stop_requested) {
  const ServedTeam& served = *team.served;
  RunSummary summary;
  summary.status = "finished";
  const std::int64_t unit = unit_samples(config);
  const auto samples = static_cast<std::int64_t>(data.train->size());
  Leading leading = {.run = *this,
                     .leader = leader,
                     .books = books,
                     .summary = summary,
                     .guard = DivergenceGuard(std::max(samples / kWindowsAnEpoch, kLeastUnitsOfAWindow * unit)),
                     .servers = {}};
  if (note) {
    leading.take_over(*note);
  }
  leading.logged_step = state.step;
  served_state = [&leading](CheckpointState& saved) { return leading.add_state(saved); };
  served_bytes = [&leader] { return leader.traffic().all(); };
  moved_bytes = [&links] { return links.bytes_moved(); };
  if (!note) {
    const LeaseTable::Options plan = leading.begin();
    if (served.routes != nullptr) {
      links.keep_beginning(books.copy(), leading.note(plan));  // before any sample is handed out
    }
    served.plan_leases(plan, 0);
  }
  std::int64_t noted_rows = -1;
  leading.logged_staleness = books.staleness();
  leading.last_closed = state.epoch_began;
  const double seconds_before = state.train_seconds;
  const auto workers_left = [&] { return books.staying(served.workers_left().incarnations); };
  const auto somebody_died = [&] { return is_without_a_worker(); };
  const auto begin = Clock::now();
  Clock::time_point stop_at = Clock::time_point::max();
  Clock::time_point looked_at = Clock::now();
  while (leading.goes_on()) {
    if (deposed(looked_at)) {
      return end_deposed();
    }
    // Asked first: what they said before they left is in the books.
    const ServedTeam::WorkersLeft there = served.workers_left();
    const int left = books.staying(there.incarnations) + there.awaited;
    const bool died = somebody_died();
    tell_news(links, stop_requested);
    const ServedBooks::News news = books.take();
    state.train_seconds = seconds_before + seconds_since(begin);
    leading.take_in(news);
    if (const std::string lost = links.broken(); !lost.empty()) {
      leading.servers = {Outcome::Kind::peer_lost, {}, lost};
    }
    if (!leading.goes_on()) {
      break;
    }
    if (served.routes != nullptr && noted_rows != state.metrics_rows) {
      links.keep_note(leading.note({}));
      noted_rows = state.metrics_rows;
    }
    if (links.is_to_give_up_lead() && !stop_requested()) {
      end_leading();
      links.keep_note(leading.note({}));
      links.give_up_lead();
      return std::nullopt;
    }
    stop_at = stop_requested() ? std::min(stop_at, Clock::now() + kStopPatience) : stop_at;
    if (Clock::now() > stop_at && !died) {
      summary.status = "interrupted";  // somebody cannot hear of it
      break;
    }
    if (died || (left == 0 && news.closed.empty())) {
      summary.status = stop_requested() && !died ? "interrupted" : "lost";
      const std::string seen = died ? "a worker is gone, and the parameters that it held" : "all workers are gone";
      summary.problem = summary.status == "interrupted" ? "" : team.explain ? team.explain(seen) : seen;
      break;
    }
    leading.watch_divergence(news.sums);
    if (config.checkpoint_every > 0 &&
        state.step - std::max<std::int64_t>(0, checkpointed_step) >= config.checkpoint_every) {
      leading.checkpoint();
    }
    leading.show_progress(news.sums);
    serve_on(links.pushes(), stop_requested);
    std::this_thread::sleep_for(kLeaderTurn);
  }
  if (deposed(looked_at)) {
    return end_deposed();
  }
  blame_coordinator(summary);
  if (!leading.servers.ok()) {
    (void)went_on({.outcome = StepReport::Outcome::group_lost, .culprit = leading.servers.reason}, state, summary);
  } else if (leading.enough) {
    summary.status = "stopped early";
  }
  if (summary.status != "diverged" && (summary.status != "lost" || !served.ends_with_a_worker())) {
    leading.checkpoint();
  }
  if (summary.status == "lost" && checkpointed_step != state.step) {
    summary.problem += "; " + rolled_back();
  }
  if (leading.servers.ok()) {
    leading.order(RequestHead::Kind::end, 0);
  }
  links.end_server();
  state.train_seconds = seconds_before + seconds_since(begin);
  // Who lacks parameters that nobody has any more has no last word to say.
  wait_for_the_last(
      workers_left, [&] { return somebody_died() || !links.broken().empty(); }, stop_requested);
  books.close_all();
  served_audit = books.total();
  staleness = books.staleness();
  summary.samples_per_second =
      state.train_seconds > 0 ? static_cast<double>(leading.applied_samples) / state.train_seconds : 0;
  doing(WorkerActivity::Kind::ending);
  write_results(summary);
  return summary;
}

}  // namespace distbelief
