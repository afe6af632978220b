// What the leader of a Sandblaster run does: it runs L-BFGS by orders to the servers, has the objective evaluated by
// the workers, and looks at what came of it. It sees parameters only to test and to keep them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "metrics/format.h"
#include "params/lbfgs/lbfgs.h"
#include "server/server_vectors.h"
#include "server/state_bytes.h"
#include "train/evaluate.h"
#include "train/portion_books.h"
#include "train/trainer_run.h"

namespace distbelief {
namespace {

constexpr std::chrono::milliseconds kEvaluationTurn{10};
constexpr std::int64_t kPortionsOfAWorker = 32;  // at least, if --portion does not say otherwise
constexpr std::uint64_t kIdsInFlight = 1 << 20;  // more than are handed out while a state is being saved

}  // namespace

PortionTable::Options Trainer::Run::portion_options() const {
  std::int64_t portion = config.portion;
  if (portion == 0) {
    const std::int64_t each =
        static_cast<std::int64_t>(data.train->size()) / (replicas_of(config) * kPortionsOfAWorker);
    portion = std::max<std::int64_t>(1, each / config.batch) * config.batch;
  }
  return {.portion = portion,
          .most_portions = static_cast<int>(config.portions_per_push),
          .backups = config.backup_portions == "on"};
}

LeaseTable::Options Trainer::Run::no_leases() const {
  return {.samples_per_epoch = static_cast<std::int64_t>(data.train->size()), .epochs = 0};
}

struct Trainer::Run::Blasting {
  Run& run;
  ServedLinks& links;
  LeaderLinks& leader;
  PortionBooks& books;
  RunSummary& summary;
  ServerVectors& vectors;
  Lbfgs lbfgs;
  Outcome servers = {};      ///< whether all of them answer
  std::int64_t samples = 0;  ///< of an evaluation
  std::uint64_t applied = 0;
  PortionTable::Counts audited = {};  ///< until the evaluation before
  bool enough = false;                ///< there is nothing more to gain
  bool stops_early = false;           ///< or not on what is not trained on
  bool is_open = false;               ///< the evaluation: workers are given portions of it

  bool goes_on() const {
    return !enough && !stops_early && servers.ok() && summary.status == "finished" &&
           lbfgs.iterations() < run.config.iterations;
  }
  void lose(const Outcome& outcome) { servers = outcome; }

  /// Servers begin where the run stood, or with what only the leader has read.
  void begin() {
    const Clock::time_point deadline = Clock::now() + run.team.patience;
    const auto all = static_cast<double>(run.data.train->size());
    samples = std::max<std::int64_t>(1, static_cast<std::int64_t>(run.config.subset * all));
    if (!run.restored) {
      if (run.initialised) {
        servers = leader.set_values(run.replica->values(), deadline).outcome;
      }
      return;
    }
    const ServedState restored = *std::exchange(run.restored, {});
    StateReader reader(restored.leader, restored.source);
    const Units units = visit_own_state(reader);
    books.begin_ids(units.next_id);
    books.set_counts(units.counts);
    audited = units.counts;
    const ResumedState taken = std::move(*run.resumed);
    run.resumed.reset();
    const LeaderLinks::Report report = leader.set_state(taken.whole, *run.rule, 0, deadline);
    servers = report.outcome;
    if (report.status != ReplyHead::Status::done) {
      throw FileError(fmt::format("{}: expected the state of a Sandblaster run, or it is damaged", restored.source));
    }
    if (servers.ok() && !lbfgs.go_on()) {
      lose(vectors.outcome());
    }
  }

  /// What a run that goes on has to know of the units before: from which number on it may name its own, and counts.
  struct Units {
    std::uint64_t next_id = 0;
    PortionTable::Counts counts;
  };
  Units visit_own_state(StateVisitor& visitor) {
    lbfgs.visit_state(visitor);
    Units units = {.next_id = books.next_id() + kIdsInFlight, .counts = books.settled_counts()};
    units.counts.done = audited.done;  // the evaluation that is under way is made anew, done or not
    visitor.number("next_unit", units.next_id);
    for (std::int64_t PortionTable::Counts::*count :
         {&PortionTable::Counts::handed_out, &PortionTable::Counts::done, &PortionTable::Counts::again,
          &PortionTable::Counts::lost, &PortionTable::Counts::backups, &PortionTable::Counts::moved}) {
      auto number = static_cast<std::uint64_t>(units.counts.*count);
      visitor.number("count", number);
      units.counts.*count = static_cast<std::int64_t>(number);
    }
    auto batch = static_cast<std::uint64_t>(samples);
    visitor.number("samples", batch);
    samples = std::clamp<std::int64_t>(static_cast<std::int64_t>(batch), 1,
                                       static_cast<std::int64_t>(run.data.train->size()));
    return units;
  }

  bool add_state(CheckpointState& saved) {
    saved.blobs[kBooksBlob] = "";
    StateWriter writer;
    (void)visit_own_state(writer);
    saved.blobs[kLeaderBlob] = writer.take();
    run.served_audit = books.audit();
    return run.add_servers(leader, saved, servers);
  }

  /// Keeps for the next leader where this one stands. `ordering`: vectors change from here on, so that those of several
  /// servers may be of different moments.
  void keep_note(bool ordering) {
    if (run.team.served->routes != nullptr) {
      StateWriter writer;
      (void)visit_own_state(writer);
      links.keep_note(run.leader_note({{"evaluation", {books.evaluation(), ordering ? 1U : 0U}}}, writer.take()));
    }
  }

  /// Goes on where another leader stood when it kept this: with the evaluation that it began, once more; or, if it was
  /// about to change vectors, with a new history at the values that there are.
  void take_over(const std::string& note) {
    const TakenOver taken = run.take_over_from(note);
    StateReader reader(taken.own, "what the leader before kept");
    const Units units = visit_own_state(reader);
    books.begin_ids(units.next_id);
    books.set_counts(units.counts);
    audited = units.counts;
    const std::vector<std::uint64_t>& evaluation = taken.numbers.at("evaluation");
    books.set_evaluation(evaluation.at(0));
    if (evaluation.at(1) != 0) {
      lbfgs.begin_again();
    }
    run.state.epoch = std::max(run.state.epoch, static_cast<std::uint64_t>(lbfgs.iterations()));
  }

  /// Workers begin to compute the objective at the values that the servers have.
  void begin_evaluation() {
    is_open = false;
    const std::uint64_t low_water = books.begin(samples, run.team.served->copies());
    const VectorOrder clear = scale_order(kGradient, 0);
    std::vector<double> none;
    if (!vectors.run(std::span(&clear, 1), low_water, none)) {
      lose(vectors.outcome());
      return;
    }
    keep_note(false);
    open_evaluation();
  }

  /// Not while this server is to give up the lead: the next one begins the evaluation anew, and nothing is computed in
  /// vain.
  void open_evaluation() {
    if (!is_open && !links.is_to_give_up_lead()) {
      is_open = true;
      books.open();
      links.server_changed();
    }
  }

  bool snapshot() {
    servers = run.snapshot(leader);
    return servers.ok();
  }

  /// What became of the portions of one evaluation, in samples: the second answers for one are dropped.
  void audit_evaluation() {
    const PortionTable::Counts now = books.counts();
    run.log({{"evaluation_handed_out", static_cast<double>(now.handed_out - audited.handed_out)},
             {"evaluation_done", static_cast<double>(now.done - audited.done)}});
    audited = now;
  }

  /// All of the evaluation's portions are done.
  void evaluated(const LossSums& sums) {
    TrainingState& state = run.state;
    applied += static_cast<std::uint64_t>(sums.rows);
    ++state.step;
    audit_evaluation();
    keep_note(true);
    const double loss = sums.loss / static_cast<double>(sums.rows);
    const Lbfgs::Report report = lbfgs.evaluated(loss);
    if (report.status == Lbfgs::Status::lost) {
      lose(vectors.outcome());
      return;
    }
    if (!report.iterated) {  // a trial of a search
      if (report.status != Lbfgs::Status::going_on) {
        tell_end(report);
      } else if (!lbfgs.go_on()) {
        lose(vectors.outcome());
      } else {
        begin_evaluation();
      }
      return;
    }
    const ServerClient::Traffic traffic = leader.traffic();
    run.served_audit = books.audit();
    run.log({{"objective", report.objective},
             {"gradient_norm", report.gradient_norm},
             {"step_length", report.step},
             {"train_loss", loss},
             {"pushed_bytes", static_cast<double>(traffic.pushed_bytes)},
             {"fetched_bytes", static_cast<double>(traffic.fetched_bytes)},
             {"order_bytes", static_cast<double>(traffic.order_bytes)}});
    if (!std::isfinite(report.objective)) {
      summary.status = "diverged";
      summary.problem =
          fmt::format("the objective is {} after {} iterations", unsigned_nan(report.objective), lbfgs.iterations());
      return;
    }
    if (!snapshot()) {
      return;
    }
    end_iteration(sums, report);
  }

  void end_iteration(const LossSums& sums, const Lbfgs::Report& report) {
    TrainingState& state = run.state;
    const bool last = report.status != Lbfgs::Status::going_on || lbfgs.iterations() >= run.config.iterations;
    const auto all = static_cast<std::int64_t>(run.data.train->size());
    const bool moved = report.step > 0;  // not where all begins, nor where the objective changed
    if (!last) {
      const double grown = std::min(static_cast<double>(all), static_cast<double>(samples) * run.config.subset_growth);
      if (moved && grown >= static_cast<double>(samples + 1)) {
        samples = static_cast<std::int64_t>(grown);
        lbfgs.change_objective();
      } else if (!lbfgs.go_on()) {
        lose(vectors.outcome());
        return;
      }
      begin_evaluation();  // workers compute while this one tests
    }
    if (moved) {
      state.epoch_sums = sums;
      if (const Outcome outcome = run.end_epoch(state.train_seconds - state.epoch_began, stops_early); !outcome.ok()) {
        lose(outcome);
      }
      if (run.config.checkpoint_every > 0 &&
          state.step - std::max<std::int64_t>(0, run.checkpointed_step) >= run.config.checkpoint_every) {
        run.write_checkpoint(std::nullopt);
      }
      if (!last) {
        keep_note(false);
      }
    }
    if (report.status != Lbfgs::Status::going_on) {
      tell_end(report);
    }
  }

  void tell_end(const Lbfgs::Report& report) {
    enough = true;
    run.observer.note(report.status == Lbfgs::Status::minimum
                          ? fmt::format("the gradient is {:.3g} long, which is short enough", report.gradient_norm)
                          : "no step lessens the objective any more: floats allow no better");
  }
};

std::optional<RunSummary> Trainer::Run::lead_sandblaster(ServedLinks& links, PortionBooks& books,
                                                         const std::optional<std::string>& note,
                                                         const std::function<bool()>& stop_requested) {
  const ServedTeam& served = *team.served;
  RunSummary summary;
  summary.status = "finished";
  LeaderLinks leader(links, table, tables_of_parts());
  ServerVectors vectors(leader.clients(), team.patience);
  Blasting blasting = {.run = *this,
                       .links = links,
                       .leader = leader,
                       .books = books,
                       .summary = summary,
                       .vectors = vectors,
                       .lbfgs = Lbfgs(vectors, {.history = static_cast<int>(config.history),
                                                .weight_decay = config.weight_decay,
                                                .tolerance = config.tolerance})};
  served_state = [&blasting](CheckpointState& saved) { return blasting.add_state(saved); };
  served_bytes = [&leader] { return leader.traffic().all(); };
  moved_bytes = [&links] { return links.bytes_moved(); };
  if (note) {
    blasting.take_over(*note);
  } else {
    blasting.begin();
  }
  const double seconds_before = state.train_seconds;
  const auto begin = Clock::now();
  if (blasting.servers.ok()) {
    blasting.begin_evaluation();
  }
  if (served.routes != nullptr) {
    served.plan_leases(no_leases(), 0);  // from here on servers may come
  }
  const auto workers_left = [&] { return books.staying(served.workers_left().incarnations); };
  const auto somebody_died = [&] { return is_without_a_worker(); };
  Clock::time_point looked_at = Clock::now();
  while (blasting.goes_on()) {
    if (deposed(looked_at)) {
      return end_deposed();
    }
    const ServedTeam::WorkersLeft there = served.workers_left();
    const int left = books.staying(there.incarnations) + there.awaited;
    tell_news(links, stop_requested);
    const bool died = somebody_died();
    const PortionBooks::Progress progress = books.wait(Clock::now() + kEvaluationTurn);
    state.train_seconds = seconds_before + seconds_since(begin);
    if (const std::string lost = links.broken(); !lost.empty()) {
      blasting.lose({Outcome::Kind::peer_lost, {}, lost});
      break;
    }
    if (progress.done) {
      blasting.evaluated(progress.sums);
      continue;
    }
    if (!blasting.is_open && links.is_to_give_up_lead() && !stop_requested()) {  // between two evaluations
      end_leading();
      blasting.keep_note(false);
      links.give_up_lead();
      return std::nullopt;
    }
    blasting.open_evaluation();
    if (died || left == 0 || stop_requested()) {
      summary.status = stop_requested() && !died ? "interrupted" : "lost";
      const std::string seen = died ? "a worker is gone, and the parameters that it held" : "all workers are gone";
      summary.problem = summary.status == "interrupted" ? "" : team.explain ? team.explain(seen) : seen;
      break;
    }
    const double elapsed = state.train_seconds - state.epoch_began;
    observer.stepped({.epoch = blasting.lbfgs.iterations() + 1,
                      .epochs = config.iterations,
                      .step = progress.sums.rows,
                      .steps = blasting.samples,
                      .loss = progress.sums.rows > 0 ? mean_loss(progress.sums) : 0,
                      .accuracy = data.train->spec().classes > 0 && progress.sums.rows > 0
                                      ? std::optional(accuracy(progress.sums))
                                      : std::nullopt,
                      .samples_per_second = elapsed > 0 ? static_cast<double>(progress.sums.rows) / elapsed : 0});
    serve_on(links.pushes(), stop_requested);
  }
  if (deposed(looked_at)) {
    return end_deposed();
  }
  blame_coordinator(summary);
  if (!blasting.servers.ok()) {
    (void)went_on({.outcome = StepReport::Outcome::group_lost, .culprit = blasting.servers.reason}, state, summary);
  }
  if (blasting.stops_early && summary.status == "finished") {
    summary.status = "stopped early";
  }
  if (blasting.servers.ok() && summary.status != "diverged" &&
      (summary.status != "lost" || !served.ends_with_a_worker()) && !has_checkpoint() && state.epoch > 0) {
    write_checkpoint(std::nullopt);
  }
  if (summary.status == "lost" && checkpointed_step != state.step) {
    summary.problem += "; " + rolled_back();
  }
  books.end();
  links.end_server();
  state.train_seconds = seconds_before + seconds_since(begin);
  // Who lacks parameters that nobody has any more has no last word to say.
  wait_for_the_last(
      workers_left, [&] { return somebody_died() || !links.broken().empty(); }, stop_requested);
  served_audit = books.audit();
  const double seconds_here = state.train_seconds - seconds_before;
  summary.samples_per_second = seconds_here > 0 ? static_cast<double>(blasting.applied) / seconds_here : 0;
  doing(WorkerActivity::Kind::ending);
  write_results(summary);
  return summary;
}

}  // namespace distbelief
