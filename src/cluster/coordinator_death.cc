// How the coordinator finds out that a member is dead or stands still, and what it does about it.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "cluster/coordinator_state.h"
#include "cluster/process_end.h"
#include "cluster/stall.h"

namespace distbelief {
namespace {

std::string exit_text(const control::ExitSeen& exit) {
  return describe(ProcessEnd{.exit_code = exit.exit_code(), .signal = exit.signal()});
}

/// ", last seen after step 120: computing step 121".
std::string last_seen(const control::Progress& progress) {
  if (progress.step() == 0 && progress.operation().empty()) {
    return {};
  }
  return progress.operation().empty()
             ? fmt::format(", last seen after step {}", progress.step())
             : fmt::format(", last seen after step {}: {}", progress.step(), progress.operation());
}

constexpr std::chrono::milliseconds kViewDelayAfterLoss{10};

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

void CoordinatorState::look_for_the_dead() {
  if (!awaits_return()) {
    grace_until_.reset();
  }
  for (auto& [id, record] : roster_.records()) {
    if (!record.living()) {
      continue;
    }
    const bool is_away = record.state == Record::State::reconnecting;
    const ProcessSight sight = is_away ? look_for_process(record) : ProcessSight::unseen;
    const auto reconnect_limit = record.was_silent ? rules_.cut_reconnect_limit : rules_.reconnect_limit;
    if (record.exit && now_ - record.exit_at >= rules_.reconnect_limit) {
      declare_dead_by_exit(record);
    } else if (grace_until_ && record.connection == ConnectionId{}) {
      continue;  // it may be on its way back
    } else if (sight == ProcessSight::gone && ends_unseen(record)) {
      declare_lost(record, "ended without a word");
    } else if (is_away && sight != ProcessSight::runs && now_ - record.disconnected_at >= reconnect_limit) {
      declare_lost(record, record.is_awaited ? fmt::format("did not come back within {:.1f} s when the coordinator did",
                                                           seconds(now_ - record.disconnected_at))
                                             : fmt::format("closed its connection and did not come back within {} ms",
                                                           reconnect_limit.count()));
    } else if (now_ - record.heard_at >= rules_.silence_limit) {
      declare_lost(record, fmt::format("was silent for {:.1f} s", seconds(now_ - record.heard_at)));
    }
  }
  roster_.forget_observers();
}

bool CoordinatorState::ends_unseen(const Record& record) const {
  const bool has_launcher = roster_.living(Role::launcher) > 0;  // which knows more of what it started
  return record.launch == 0 || !has_launcher;
}

ProcessIdentity CoordinatorState::process_of(const control::Join& join) const {
  const ProcessIdentity said = ProcessIdentity::parse(join.process());
  const bool is_seen = rules_.look_for_process && rules_.look_for_process(said) == ProcessSight::runs;
  return is_seen ? said : ProcessIdentity{};
}

ProcessSight CoordinatorState::look_for_process(const Record& record) const {
  return record.process.host != 0 ? rules_.look_for_process(record.process) : ProcessSight::unseen;
}

void CoordinatorState::on(Record& launcher, const control::ExitSeen& exit) {
  if (launcher.info.role != Role::launcher) {
    misbehaves(launcher, "ExitSeen");
    return;
  }
  Record* record = roster_.find_process(exit);
  if (record != nullptr && record->living()) {
    record->exit = exit;
    record->exit_at = now_;
    // With an open connection its last words may still be on the way; the close comes right behind them.
    if (record->connection == ConnectionId{}) {
      declare_dead_by_exit(*record);
    }
    return;
  }
  const bool left = record != nullptr && record->state == Record::State::left;
  if (left && record->info.role == Role::standby && record->leaving) {
    replacement_failed(*record, exit_text(exit));
  }
  if (record != nullptr && record->may_come_again) {
    will_not_come(*record, exit_text(exit));
  }
  const bool was_worker = exit.name().starts_with(kStartedWorker);
  const bool was_started = was_worker || exit.name().starts_with(kStartedServer);
  const bool is_news = exit.launch() == 0 || !ended_unjoined_.contains(exit.launch());
  if (record == nullptr && phase_ == Phase::running && was_started && is_news) {
    ended_unjoined_.insert(exit.launch());  // a launcher says it again to a coordinator that came back
    expect_one_less(was_worker ? Role::worker : Role::server);
    const std::string text =
        fmt::format("{} (pid {} on {}) {} before it joined", exit.name(), exit.pid(), exit.host(), exit_text(exit));
    log(text);
    tell_people(text);
    if (rules_.workers_hold_parts()) {
      change_view(text, kViewDelayAfterLoss);
    }
  }
  if (phase_ == Phase::joining && !left && !exit.starts_again()) {
    fail(
        fmt::format("{} (pid {} on {}) {} before the job began", exit.name(), exit.pid(), exit.host(), exit_text(exit)),
        exit.exit_code() == kBadInputCode);
  }
}

void CoordinatorState::declare_dead_by_exit(Record& record) { declare_lost(record, exit_text(*record.exit)); }

void CoordinatorState::declare_lost(Record& record, const std::string& cause, bool comes_again) {
  unsaved_ = true;
  last_worker_was_lost_ = last_worker_was_lost_ || record.info.role == Role::worker;
  record.state = Record::State::lost;
  record.reason = cause + last_seen(record.progress);
  record.may_come_again = comes_again && !record.exit;
  record.expected_until = time_to_come(record);
  if (record.connection != ConnectionId{}) {
    control::Fenced fenced;
    fenced.set_term(term_);
    fenced.set_reason(fmt::format("the coordinator gave this process up: {}", record.reason));
    fenced.set_come_again(record.may_come_again);
    tell(record, fenced);
    actions_.emplace_back(Close{record.connection, record.reason});
    roster_.disconnect(record);
  }
  record.outbox.clear();
  if (record.info.role == Role::observer) {
    return;
  }
  log(fmt::format("lost {}: {}", describe(record.info), record.reason));
  if (record.info.role == Role::standby) {
    tell_people(fmt::format("{} {}", describe(record.info), record.reason));
    if (record.leaving) {
      replacement_failed(record, record.reason);
    }
    return;
  }
  if (serves(record)) {  // others held nothing, and nobody counts on them
    note_server(control::ServerHistory::Event::LOST, record);
    keep_the_last_servers();
    tell_server_history();
  }
  if (record.info.role == Role::server && rules_.servers_may_change && rules_.servers_have_copies && !record.leaving) {
    ++missing_servers_;
    lost_server_ = describe(record.info);
  }
  control::Lost lost;
  *lost.mutable_member() = to_wire(record.info);
  lost.set_reason(record.reason);
  lost.set_remedy(remedy_for(record));
  tell_all(lost, &record);
  // Another would find nothing here.
  const bool took_all_along = serves(record) && (!rules_.servers_have_copies || staying_servers().empty());
  if (record.info.role == Role::worker && !took_all_along) {
    replace(record);
  }
  if (record.info.role == Role::launcher) {
    if (rules_.outlives_launcher) {
      return;
    }
    fail(fmt::format("{} is gone: it {}", describe(record.info), record.reason));
    return;
  }
  fence(record);
  if (phase_ == Phase::joining) {
    roster_.vacate(record);
    if (record.exit && !record.exit->starts_again()) {
      fail(fmt::format("{} {} before the job began", describe(record.info), record.reason));
    }
    return;
  }
  change_view(fmt::format("{} {}", describe(record.info), record.reason), kViewDelayAfterLoss);
  if (rules_.copies_come_whole() && record.info.role == Role::worker) {
    break_copy_of(record);
  }
}

std::string CoordinatorState::remedy_for(const Record& lost) const {
  const auto servers = static_cast<int>(staying_servers().size());
  const bool held_all = serves(lost) && (!rules_.servers_have_copies || servers == 0);
  const bool is_served = rules_.servers > 0 || rules_.workers_serve;
  if (phase_ != Phase::running || !is_served || !lost.takes_part() || held_all || lost.may_come_again) {
    return {};  // a group's leader says where it goes on, and a run that cannot that it ends
  }
  if (lost.info.role == Role::server) {
    return fmt::format("{} server{} left", servers, servers == 1 ? " is" : "s are");
  }
  const auto others = std::ranges::count_if(roster_.records(), [&](const auto& entry) {
    const Record& other = entry.second;
    const bool is_mate = other.info.rank.value / rules_.parts == lost.info.rank.value / rules_.parts;
    return other.info.role == Role::worker && other.living() && !is_mate;
  });
  if (others == 0) {
    return {};
  }
  return fmt::format("{}its samples go to others; {} worker{} go{} on",
                     rules_.parts > 1 ? "its copy of the network is given up, " : "", others, others == 1 ? "" : "s",
                     others == 1 ? "es" : "");
}

const Straggler* CoordinatorState::find_straggler(const Record& record) const {
  const auto watch = stragglers_.find(record.info.rank.value % rules_.parts);
  return record.living() && watch != stragglers_.end() ? watch->second.find(record.info.id) : nullptr;
}

void CoordinatorState::look_for_stragglers() {
  if (phase_ != Phase::running) {
    return;
  }
  std::map<int, std::vector<WorkerTimes>> workers;  // those that have the same part of a network
  for (const auto& [id, record] : roster_.records()) {
    // Who came to a network that is cut may have the part that was free, which its rank does not say.
    const bool has_known_part =
        rules_.parts == 1 || rules_.copies_come_whole() || record.info.rank.value < rules_.workers;
    if (record.info.role == Role::worker && record.living() && has_known_part) {
      const control::Progress& progress = record.progress;
      workers[record.info.rank.value % rules_.parts].push_back(
          {id,
           {progress.timed_steps(), progress.computed_seconds(), progress.loaded_seconds(),
            progress.linked_seconds()}});
    }
  }
  for (const auto& [part, times] : workers) {
    StragglerWatch& watch = stragglers_.try_emplace(part, rules_.straggler_limit).first->second;
    for (const StragglerWatch::News& news : watch.look(times, now_)) {
      const std::string text =
          fmt::format("{} {}", describe(roster_.find(news.worker)->info),
                      news.straggler ? describe(*news.straggler) : "is no longer slower than the others");
      log(text);
      tell_people(text);
    }
  }
}

void CoordinatorState::look_for_stalls() {
  if (phase_ != Phase::running || rules_.stall_limit.count() == 0) {
    return;
  }
  const auto silent = [&](const Record& record) { return now_ - record.heard_at >= 4 * rules_.heartbeat; };
  std::vector<Record*> workers;
  std::vector<StepWatch> steps;
  for (auto& [id, record] : roster_.records()) {
    if (record.info.role == Role::worker && record.living()) {
      workers.push_back(&record);
      // What a silent one does now is not known, and so not that it waits.
      steps.push_back(
          {record.progress.step(), now_ - record.moved_at, record.progress.waits_for_others() && !silent(record)});
    }
  }
  const bool others_wait = std::ranges::any_of(steps, [](const StepWatch& worker) { return worker.waits_for_others; });
  for (const std::size_t i : find_stalled(steps, rules_.stall_limit)) {
    Record& record = *workers[i];
    if (std::exchange(record.stall_told, true)) {
      continue;
    }
    const control::Progress& progress = record.progress;
    const std::string text = fmt::format(
        "{} has made no step for {:.0f} s: {}{}{}", describe(record.info), seconds(now_ - record.moved_at),
        silent(record) ? fmt::format("silent for {:.1f} s, before that ", seconds(now_ - record.heard_at)) : "",
        progress.operation().empty() ? fmt::format("after step {}", progress.step()) : progress.operation(),
        steps[i].waits_for_others ? "; all wait for each other, so a link between them may be cut"
        : others_wait             ? "; others wait for it"
                                  : "");
    log(text);
    tell_people(text);
  }
}

}  // namespace distbelief
