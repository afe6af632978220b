// A run through parameter servers: what is common to workers, servers and the leader, and what other servers do.
#include <atomic>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "metrics/machine.h"
#include "train/trainer_run.h"

namespace distbelief {
namespace {

constexpr std::chrono::milliseconds kServerTurn{10};
constexpr double kPatienceWhenStopping = 5;             // seconds
constexpr std::chrono::seconds kMayHaveBeenStopped{1};  // less than the coordinator waits before it gives somebody up

/// Of a worker in a process that is a server too: it is its steps that others hear of, unless the process leads, which
/// tells how far all are.
class WorkerBeside : public RunObserver {
 public:
  WorkerBeside(std::function<bool()> leads, WorkerActivity& activity) : leads_(std::move(leads)), activity_(activity) {}
  void stepped(const ProgressState& state) override {
    if (!leads_()) {
      activity_.stepped(state);
    }
  }

 private:
  const std::function<bool()> leads_;
  WorkerActivity& activity_;
};

}  // namespace

UpdateOptions Trainer::Run::update_options(std::uint64_t update) const {
  const std::uint64_t updates = steps_per_epoch * static_cast<std::uint64_t>(config.epochs);
  const float rate = schedule->rate(std::min(update, updates > 0 ? updates - 1 : 0), updates);
  return {.rate = static_cast<float>(rate_scale) * rate,
          .weight_decay = static_cast<float>(config.weight_decay),
          .clip_norm = static_cast<float>(config.clip_norm),
          .clip_value = static_cast<float>(config.clip_value),
          .drop_nonfinite = config.clip_norm > 0};
}

std::int64_t Trainer::Run::warm_units() const {
  const auto all = static_cast<std::int64_t>(steps_per_epoch) * config.epochs;
  return std::min(all, (config.warm_start + config.n_push - 1) / config.n_push);
}

RunSummary Trainer::Run::train_served(const std::function<bool()>& stop_requested) {
  const ServedTeam& served = *team.served;
  const Sampler sampler(data.train->size(), config.seed, true);
  ServedBooks books(sampler, {.first_epoch = static_cast<std::int64_t>(state.epoch),
                              .epochs = config.epochs,
                              .unit_samples = unit_samples(config),
                              .seed = config.seed});
  ServedLinks::Hooks hooks;
  if (served.is_server()) {  // who leads, or may lead one day
    hooks.heard = [&books](const RequestHead& request, const ReplyHead& reply, std::string_view words) {
      books.heard(request, reply, words);
    };
    hooks.plan = [this, &books](const LeaseQuestion& question) { return plan_again(books, question); };
    hooks.save_heard = [&books] { return books.copy(); };
    hooks.restore_heard = [&books](const std::string& copy) { books.become(copy); };
  }
  const bool softsync = config.algorithm == "softsync";
  const bool staleness_rate = config.staleness_lr == "on" || (config.staleness_lr == "auto" && softsync);
  const bool synchronous = is_synchronous(config);
  const auto units = static_cast<int>(units_of_step(config));
  const auto update_of_push = [&, softsync, staleness_rate, synchronous, units,
                               warm = static_cast<std::uint64_t>(warm_units())](std::uint64_t pushes, int absent) {
    UpdateOptions options = update_options(pushes / static_cast<std::uint64_t>(units));
    options.clip_norm = 0;  // is for the whole gradient, which the worker has
    options.drop_nonfinite = false;
    options.staleness_rate = staleness_rate;
    if (softsync && pushes >= warm) {
      options.gather = std::max(1, (served.copies() - absent) / static_cast<int>(config.n));
    }
    if (synchronous) {
      options.gather = std::max(1, std::min(units, served.copies() - absent));
    }
    return options;
  };
  ParameterServer::Options options = {.update = update_of_push};
  if (synchronous || config.max_staleness >= 0) {
    options.max_staleness = synchronous ? 0 : static_cast<std::uint64_t>(config.max_staleness);
  }
  std::vector<std::vector<float>> first_values;
  ServedLinks links(served, served_spaces(first_values), *rule, options, std::move(hooks));
  first_values = {};
  const auto works = [&](const Working& working, const std::function<bool()>& stop) {
    return until_given_up([&] { return work(links, sampler, working, stop); });
  };
  const auto leads = [&](const std::function<bool()>& stop) {
    LeaderLinks leader(links, table, tables_of_parts());
    return lead(links, leader, books, std::nullopt, stop);
  };
  const auto takes_over = [&](const std::function<bool()>& stop) {
    links.begin_leading();
    LeaderLinks leader(links, table, tables_of_parts());
    return lead(links, leader, books, links.note(), stop);
  };
  return take_part(links, {.lead = leads, .take_over = takes_over, .work = works}, stop_requested);
}

LeaseTable::Options Trainer::Run::plan_again(ServedBooks& books, const LeaseQuestion& question) const {
  std::vector<SavedLeases> servers;
  for (const LeaseReport& report : question.reports) {
    SavedLeases& server = servers.emplace_back();
    server.low_water = report.low_water;
    for (const Lease& lease : report.leases) {
      server.leases.push_back(
          {lease.id, {.epoch = lease.epoch, .first = lease.first, .count = lease.count}, lease.next_push});
    }
  }
  LeaseTable::Options plan = books.go_on(servers, question.held, question.first_lease);
  plan.warm_samples =
      std::max<std::int64_t>(0, warm_units() * unit_samples(config) - static_cast<std::int64_t>(books.total().applied));
  return plan;
}

RunSummary Trainer::Run::train_sandblaster(const std::function<bool()>& stop_requested) {
  const ServedTeam& served = *team.served;
  const Sampler sampler(data.train->size(), config.seed, true);
  PortionBooks books(portion_options());
  ServedLinks::Hooks hooks;
  if (served.is_server()) {  // whose books are empty as long as it does not lead
    hooks.heard = [&books](const RequestHead& request, const ReplyHead& reply, std::string_view words) {
      books.heard(request, reply, words);
    };
    hooks.save_heard = [&books] { return books.copy(); };
    hooks.restore_heard = [&books](const std::string& copy) { books.become(copy); };
    hooks.work = [&books](const RequestHead& request) { return books.work(request); };
    hooks.lost = [&books](std::uint64_t worker) { books.lose(worker); };
    hooks.plan = [this](const LeaseQuestion& /*question*/) { return no_leases(); };
  }
  const ParameterServer::Options options = {
      .update = [](std::uint64_t, int) { return UpdateOptions{}; },  // for statistics that are averaged
      .keeps_vectors = true};
  std::vector<std::vector<float>> first_values;
  ServedLinks links(served, served_spaces(first_values), *rule, options, std::move(hooks));
  first_values = {};
  const auto works = [&](const Working& working, const std::function<bool()>& stop) {
    return until_given_up([&] { return work_on_portions(links, sampler, working, stop); });
  };
  const auto leads = [&](const std::function<bool()>& stop) {
    return lead_sandblaster(links, books, std::nullopt, stop);
  };
  const auto takes_over = [&](const std::function<bool()>& stop) {
    links.begin_leading();
    return lead_sandblaster(links, books, links.note(), stop);
  };
  return take_part(links, {.lead = leads, .take_over = takes_over, .work = works}, stop_requested);
}

Outcome Trainer::Run::snapshot(LeaderLinks& leader) {
  return leader.fetch(replica->values(), Clock::now() + team.patience);
}

bool Trainer::Run::add_servers(LeaderLinks& leader, CheckpointState& saved, Outcome& servers) {
  std::vector<std::string> states;
  const LeaderLinks::Report report = leader.save(states, Clock::now() + team.patience);
  servers = report.outcome;
  if (report.status == ReplyHead::Status::nonfinite) {
    observer.note(fmt::format("a server's numbers are not finite: no checkpoint is written{}",
                              has_one_before() ? ", the one before stays" : ""));
    return false;
  }
  for (std::size_t i = 0; i < states.size(); ++i) {
    saved.blobs[server_blob(i)] = std::move(states[i]);
  }
  return servers.ok();
}

RunSummary Trainer::Run::take_part(ServedLinks& links, const ServedParts& parts,
                                   const std::function<bool()>& stop_requested) {
  const ServedTeam& served = *team.served;
  if (!served.is_server()) {
    RunSummary summary = parts.work({.replica = *replica, .place = state, .observer = observer}, stop_requested);
    write_results(summary);
    return summary;
  }
  const Part serve = [&](const std::function<bool()>& stop) {
    const std::optional<RunSummary> led = served.leads() ? parts.lead(stop) : std::nullopt;
    return led ? *led : follow(links, parts.take_over, stop);
  };
  return served.is_worker() ? work_beside(links, parts.work, serve, stop_requested) : serve(stop_requested);
}

RunSummary Trainer::Run::follow(ServedLinks& links, const LeadingPart& take_over,
                                const std::function<bool()>& stop_requested) {
  const ServedTeam& served = *team.served;
  RunSummary summary;
  summary.status = "finished";
  while (!worker_failed && !served.leader_left()) {
    for (const std::string& text : links.take_news()) {
      observer.note(text);
    }
    if (const std::string lost = links.broken(); !lost.empty()) {
      summary.status = "lost";
      summary.problem = team.explain ? team.explain(lost) : lost;
      break;
    }
    if (links.may_leave()) {
      summary.status = "left";
      break;
    }
    if (links.leads()) {
      if (!links.note().empty()) {
        if (const std::optional<RunSummary> led = take_over(stop_requested)) {
          return *led;
        }
        continue;
      }
      const std::string lost = fmt::format("the {} that leads was lost before training began", served.kind_of_server());
      summary.status = "lost";
      summary.problem = team.explain ? team.explain(lost) : lost;
      break;
    }
    serve_on(links.pushes(), stop_requested);
    std::this_thread::sleep_for(kServerTurn);
  }
  if (links.nobody_leads()) {  // nor will ever: no coordinator is there to say who
    summary.status = "lost";
    summary.problem = "the coordinator was lost while another server was to lead; " + rolled_back();
  }
  write_results(summary);
  return summary;
}

void Trainer::Run::end_leading() {
  hear_of_checkpoints(true);
  writer.reset();
  metrics.reset();
  events.reset();
  folder.reset();
  served_state = {};
  served_bytes = {};
  moved_bytes = {};
  team.leads_servers = false;
}

std::string Trainer::Run::leader_note(std::map<std::string, std::vector<std::uint64_t>> numbers,
                                      const std::string& own) const {
  numbers["place"] = {static_cast<std::uint64_t>(state.step), state.epoch, state.position,
                      static_cast<std::uint64_t>(checkpointed_step + 1)};
  const std::string text = state_text(state, numbers);
  const std::uint64_t size = text.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof(size)) + text + own;
}

Trainer::Run::TakenOver Trainer::Run::take_over_from(const std::string& note) {
  const std::string source = "what the leader before kept";
  std::uint64_t size = 0;
  if (note.size() < sizeof(size)) {
    throw FileError(source + " is damaged");
  }
  std::memcpy(&size, note.data(), sizeof(size));
  TakenOver taken;
  parse_state(note.substr(sizeof(size), size), source, state, taken.numbers);
  taken.own = note.substr(std::min<std::size_t>(sizeof(size) + size, note.size()));
  const std::vector<std::uint64_t>& place = taken.numbers.at("place");
  state.step = static_cast<std::int64_t>(place.at(0));
  state.epoch = place.at(1);
  state.position = place.at(2);
  checkpointed_step = static_cast<std::int64_t>(place.at(3)) - 1;
  state.logged_sums = {};
  team.leads_servers = true;
  if (!std::filesystem::exists(std::filesystem::path(config.out) / "run.yaml")) {
    throw Error(fmt::format("the {} that wrote the run's folder is gone, and this host does not see {}",
                            team.served->kind_of_server(), config.out));
  }
  if (replica == nullptr) {
    replica = std::make_unique<Replica>(graph, table, replica_options);  // the worker beside has the first
  }
  folder.emplace(RunFolder::open(config.out));
  metrics.emplace(MetricsLog::resume(folder->metrics(), state.metrics_rows));
  events = std::make_unique<EventFile>(folder->path(), this_machine().host, wall_clock(), state.step);
  observer.note(fmt::format("{} leads from here on, at update {}", team.served->name_of_server(team.served->number()),
                            state.step));
  return taken;
}

void Trainer::Run::tell_news(ServedLinks& links, const std::function<bool()>& stop_requested) {
  const std::vector<std::string> news = links.take_news();  // of who is there: so who came is told first
  if (!stop_requested()) {                                  // then all go, and nobody wants to know
    note_team_changes();
  }
  for (const std::string& text : news) {
    observer.note(text);
  }
}

void Trainer::Run::note_team_changes() {
  if (!team.served->changes) {
    return;
  }
  const int workers = team.served->workers_taking_part();
  workers_seen = workers;
  for (const ServedTeam::Change& change : team.served->changes()) {
    using What = ServedTeam::Change::What;
    const TeamEvent event = {change.what == What::joined ? TeamEvent::What::joined
                             : change.what == What::left ? TeamEvent::What::left
                                                         : TeamEvent::What::lost,
                             change.who, change.why, state.step};
    const bool known = std::ranges::any_of(
        state.events, [&](const TeamEvent& one) { return one.what == event.what && one.who == event.who; });
    if (known) {
      continue;  // a leader before has told
    }
    state.events.push_back(event);
    if (event.what != TeamEvent::What::lost) {  // which others tell
      const bool serves = change.role == Role::server;
      const int now = serves ? change.servers : workers;
      observer.note(fmt::format("{} {} after update {}: {} {}{} now", event.who, name_of(event.what), event.step, now,
                                serves ? "server" : "worker", now == 1 ? "" : "s"));
    }
  }
}

bool Trainer::Run::deposed(Clock::time_point& looked_at) const {
  const Clock::time_point now = Clock::now();
  const Clock::duration since = now - std::exchange(looked_at, now);
  return team.served->routes != nullptr && team.served->still_leads && since > kMayHaveBeenStopped &&
         !team.served->still_leads();
}

RunSummary Trainer::Run::end_deposed() const {
  RunSummary summary;
  summary.status = "lost";
  summary.problem =
      fmt::format("this process was silent for too long, and another {} leads", team.served->kind_of_server());
  return summary;
}

std::string Trainer::Run::rolled_back() const {
  return checkpointed_step < 0 ? fmt::format("all {} updates are lost: there is no checkpoint yet", state.step)
                               : fmt::format("{} updates since the checkpoint of step {} are lost",
                                             state.step - checkpointed_step, checkpointed_step);
}

void Trainer::Run::wait_for_the_last(const std::function<int()>& workers_left,
                                     const std::function<bool()>& somebody_died,
                                     const std::function<bool()>& stop_requested) const {
  const double usual = config.stall_after > 0 ? config.stall_after : RunConfig().stall_after;
  const Clock::time_point began = Clock::now();
  while (workers_left() > 0 && !somebody_died()) {
    const double patience = stop_requested() ? std::min(kPatienceWhenStopping, usual) : usual;
    if (seconds_since(began) > patience) {
      observer.note(fmt::format("the run ends without {}: no answer for {:g} s",
                                team.served->names_left ? team.served->names_left() : "a worker", patience));
      return;
    }
    std::this_thread::sleep_for(kServerTurn);
  }
}

void Trainer::Run::serve_on(std::uint64_t pushes_taken, const std::function<bool()>& stop_requested) {
  if (team.served->is_worker()) {
    return;
  }
  const auto pushes = static_cast<std::int64_t>(pushes_taken);
  team.activity->begin(WorkerActivity::Kind::serving, pushes);
  if (team.chaos != nullptr) {
    double units = static_cast<double>(steps_per_epoch) * static_cast<double>(config.epochs * units_of_step(config));
    if (is_sandblaster(config)) {
      const double of_a_push = static_cast<double>(portion_options().portion * config.portions_per_push);
      units =
          static_cast<double>(config.iterations) * std::max(1.0, static_cast<double>(data.train->size()) / of_a_push);
    }
    if (chaos_told == 0 && team.served->is_late_server) {
      chaos_told = pushes / team.served->copies();  // what was before is no affair of its
    }
    const double share = units > 0 ? static_cast<double>(pushes) / units : 0;
    const std::int64_t now = pushes / team.served->copies() + 1;
    // It hears of every step, though many pushes may have come since it was told last.
    while (chaos_told < now) {
      team.chaos->before_step({.step = ++chaos_told, .share = share}, team.activity->compute(), stop_requested);
    }
  }
}

void Trainer::Run::blame_coordinator(RunSummary& summary) const {
  if (summary.status == "interrupted" && team.served->coordinator_lost && team.served->coordinator_lost()) {
    summary.status = "lost";
    summary.problem = team.explain("the coordinator is lost");
  }
}

bool Trainer::Run::is_without_a_worker() const {
  const ServedTeam& served = *team.served;
  return worker_failed || (served.ends_with_a_worker() &&
                           served.workers_left().incarnations.size() < static_cast<std::size_t>(served.workers));
}

RunSummary Trainer::Run::work_beside(ServedLinks& links, const WorkingPart& work, const Part& serve,
                                     const std::function<bool()>& stop_requested) {
  // Who leads evaluates with the run's replica; who may lead one day makes another then.
  const std::unique_ptr<Replica> own =
      team.served->leads() ? std::make_unique<Replica>(graph, table, replica_options) : std::move(replica);
  TrainingState place = state;
  const auto leads = [&] { return team.served->routes == nullptr ? team.served->leads() : links.leads(); };
  WorkerBeside watched(leads, *team.activity);
  RunSummary worked;
  RunSummary summary;
  std::exception_ptr failure;
  std::atomic<bool> over = false;
  {
    const std::jthread beside([&] {
      try {
        worked = work({.replica = *own, .place = place, .observer = watched}, [&] { return stop_requested() || over; });
        (void)links.worker().leave(Clock::now() + team.patience);
      } catch (...) {
        failure = std::current_exception();
        worker_failed = true;
      }
    });
    try {
      summary = serve(stop_requested);
    } catch (...) {
      over = true;  // it has nobody any more to lease from
      links.let_all_go();
      throw;
    }
    over = true;
  }
  if (failure) {
    std::rethrow_exception(failure);
  }
  return team.leads() || summary.status != "finished" ? summary : worked;
}

}  // namespace distbelief
