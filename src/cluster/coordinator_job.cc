// The job as a whole: its beginning, its views, its end, and how it looks from outside.
#include <fmt/format.h>

#include <algorithm>

#include "cluster/coordinator_state.h"

namespace distbelief {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kReasonsShown = 3;
constexpr milliseconds kNoLimit = std::chrono::hours(24 * 365);

std::string joined(const std::vector<std::string>& reasons) {
  std::string text;
  for (std::size_t i = 0; i < std::min(reasons.size(), kReasonsShown); ++i) {
    text += (i == 0 ? "" : "; ") + reasons[i];
  }
  return reasons.size() <= kReasonsShown ? text : fmt::format("{}; and {} more", text, reasons.size() - kReasonsShown);
}

}  // namespace

void CoordinatorState::settle() {
  if (awaits_return()) {
    return;  // who is there is not known yet
  }
  grace_until_.reset();
  const bool standbys_are_there =
      roster_.living(Role::standby) >= rules_.standbys || now_ >= join_deadline_ - rules_.join_limit / 2;
  if (phase_ == Phase::joining && roster_.complete() && standbys_are_there &&
      (!rules_.has_launcher || roster_.living(Role::launcher) > 0)) {
    phase_ = Phase::running;
    roster_.begin();
    for (const Record* member : roster_.members()) {
      if (may_serve(*member)) {
        note_server(control::ServerHistory::Event::BEGAN, *member);
      }
    }
    tell_server_history();
    view_reasons_ = {"all processes joined"};
    issue_view();
  }
  start_missing_servers();
  start_missing_workers();
  const int workers = roster_.living(Role::worker);
  if (workers > 0) {
    without_workers_since_.reset();
  } else if (awaited_for_a_copy() > 0) {
    without_workers_since_ = without_workers_since_.value_or(now_);
  } else if (phase_ == Phase::running) {
    if (without_workers_since_) {
      change_view("nobody is waited for any more", milliseconds(0));
    }
    no_workers_ = true;
    if (workers_ended()) {  // servers may still have much to do: they evaluate and write
      begin_stop("all workers are done", roster_.living(Role::server) > 0 ? kNoLimit : rules_.stop_limit);
    } else {
      fail("all workers are lost");
    }
  }
  if (phase_ == Phase::stopping && ((workers == 0 && roster_.living(Role::server) == 0) || now_ >= stop_deadline_)) {
    end();
  }
  look_for_copies();
  recover_leases();
}

bool CoordinatorState::workers_ended() const {
  const auto& records = roster_.records();
  return std::any_of(records.begin(), records.end(), [this](const auto& entry) {
    const Record& record = entry.second;
    const bool was_done = record.succeeded && !record.reason.starts_with("left") && record.reason != kNeverBegan;
    return record.info.role == Role::worker && record.state == Record::State::left &&
           (was_done || !last_worker_was_lost_);
  });
}

void CoordinatorState::begin_stop(const std::string& reason, milliseconds limit) {
  if (phase_ == Phase::ended) {
    return;
  }
  if (phase_ == Phase::stopping) {
    stop_deadline_ = std::min(stop_deadline_, now_ + limit);
    return;
  }
  unsaved_ = true;
  if (awaited() > 0) {
    change_view("nobody is waited for any more: " + reason, milliseconds(0));
  }
  phase_ = Phase::stopping;
  stop_reason_ = reason;
  stop_limit_ = limit;
  stop_deadline_ = now_ + limit;
  log("stopping: " + reason);
  tell_all(stop_order());
}

control::Order CoordinatorState::stop_order() const {
  control::Order order;
  order.set_what(control::Order::STOP);
  order.set_term(term_);
  order.set_reason(stop_reason_);
  order.set_no_workers(no_workers_);
  return order;
}

control::OrderAnswer CoordinatorState::order_to_leave(const control::Order& order) {
  control::OrderAnswer answer;
  const std::vector<const Record*> members = roster_.members();
  const auto found =
      std::ranges::find_if(members, [&](const Record* member) { return member->info.rank.value == order.rank(); });
  const int copies = roster_.staying(Role::worker) / rules_.parts;
  if (found == members.end()) {
    answer.set_text(
        fmt::format("the job has no worker or server {}: 'distbelief status' shows their ranks", order.rank()));
  } else if (phase_ != Phase::running) {
    answer.set_text(fmt::format("the job is {}", phase_text()));
  } else if ((*found)->info.role == Role::server) {
    return order_server_to_leave(**found);
  } else if (rules_.workers_hold_parts()) {
    return order_part_to_leave(*roster_.find((*found)->info.id));
  } else if (!rules_.workers_may_leave) {
    answer.set_text("the workers of this job cannot do without each other: stop it, and go on with --resume and fewer");
  } else if (copies <= 1 && !(*found)->leaving) {
    answer.set_text(fmt::format("{} is the last that trains: stop the job instead", describe((*found)->info)));
  } else if (rules_.workers_serve) {
    return order_server_to_leave(**found);  // it trains until others have what it holds
  }
  if (!answer.text().empty()) {
    return answer;
  }
  std::string names;
  for (const Record* member : members) {
    if (member->info.role == Role::worker && member->info.rank.value / rules_.parts == order.rank() / rules_.parts) {
      control::Order told = order;
      told.set_term(term_);
      told.set_rank(member->info.rank.value);
      Record& leaver = *roster_.find(member->info.id);
      leaver.leaving = true;
      unsaved_ = true;
      tell(leaver, told);
      names += (names.empty() ? "" : ", ") + describe(member->info);
    }
  }
  answer.set_accepted(true);
  answer.set_text(fmt::format("{} was asked to leave", names));
  return answer;
}

void CoordinatorState::fail(const std::string& reason, bool bad_input) {
  if (phase_ != Phase::ended && !failure_) {
    failure_ = reason;
    bad_input_ = bad_input;
    unsaved_ = true;
  }
  begin_stop(reason, rules_.has_launcher && roster_.living(Role::launcher) == 0 ? rules_.launcher_stop_limit
                                                                                : rules_.stop_limit);
}

const Record* CoordinatorState::who_failed_at_last() const {
  std::vector<const Record*> failed;
  for (const auto& [id, record] : roster_.records()) {
    if (record.takes_part() && record.state == Record::State::left && !record.succeeded) {
      failed.push_back(&record);
    }
  }
  std::ranges::stable_sort(failed, {}, &Record::left_at);
  const Record* culprit = failed.empty() ? nullptr : failed.front();
  for (std::size_t i = 1; i < failed.size(); ++i) {
    culprit = is_another_accident(failed[i - 1]->left_at, failed[i]->left_at) ? failed[i] : culprit;
  }
  return culprit;
}

void CoordinatorState::end() {
  phase_ = Phase::ended;
  std::string stragglers;
  for (const Record* member : roster_.members()) {
    stragglers += (stragglers.empty() ? "" : ", ") + describe(member->info);
  }
  if (const Record* const culprit = failure_ ? nullptr : who_failed_at_last(); culprit != nullptr) {
    failure_ = fmt::format("{} failed: {}", describe(culprit->info), culprit->reason);
    bad_input_ = culprit->bad_input;
  }
  if (!failure_ && !stragglers.empty()) {
    failure_ = stop_reason_;
  }
  End end{!failure_.has_value(), failure_.value_or(stop_reason_), bad_input_};
  if (!stragglers.empty()) {
    end.reason += "; did not end in time: " + stragglers;
  }
  log("ended: " + end.reason);
  control::Ended ended;
  ended.set_succeeded(end.succeeded);
  ended.set_reason(end.reason);
  ended.set_bad_input(end.bad_input);
  tell_all(ended);
  actions_.emplace_back(end);
}

void CoordinatorState::change_view(const std::string& reason, milliseconds delay) {
  unsaved_ = true;
  if (view_number_ == 0) {
    return;  // the job has not begun, and will not
  }
  view_reasons_.push_back(reason);
  view_due_ = std::min(view_due_.value_or(now_ + delay), now_ + delay);
}

void CoordinatorState::issue_view() {
  unsaved_ = true;
  view_due_.reset();
  review_wishes();
  ++view_number_;
  const control::View view = make_view(joined(std::exchange(view_reasons_, {})));
  log(fmt::format("view {}: {} members; {}", view_number_, view.members_size(), view.reason()));
  tell_all(view);
}

control::View CoordinatorState::make_view(const std::string& reason) const {
  control::View view;
  view.set_term(term_);
  view.set_number(view_number_);
  view.set_reason(reason);
  view.set_complete(roster_.complete());
  view.set_awaited(static_cast<std::uint32_t>(awaited()));
  view.set_peaceful(std::none_of(roster_.records().begin(), roster_.records().end(), [](const auto& entry) {
    const Record& record = entry.second;
    return record.takes_part() && !record.living() && !(record.state == Record::State::left && record.succeeded);
  }));
  for (const auto& [id, record] : roster_.records()) {
    if (record.takes_part() && !record.living() && !(record.state == Record::State::left && record.succeeded)) {
      view.add_failed(id);
    }
    if (record.info.role == Role::worker && record.state == Record::State::left && record.reason == kAllDone) {
      view.add_done(id);
    }
  }
  view.set_most_workers(static_cast<std::uint32_t>(most_workers_));
  for (const Record* member : roster_.members()) {
    *view.add_members() = to_wire(member->info);
    if (rules_.workers_hold_parts() && member->leaving) {
      view.add_leaving(member->info.rank.value);
    }
  }
  return view;
}

std::string CoordinatorState::phase_text() const {
  switch (phase_) {
    case Phase::joining:
      if (roster_.complete()) {
        return "waiting for standbys";
      }
      return fmt::format("waiting for {}: {}", roster_.missing_count(), roster_.missing());
    case Phase::running:
      return "running";
    case Phase::stopping:
      return "stopping: " + stop_reason_;
    case Phase::ended:
      break;
  }
  return "over: " + failure_.value_or(stop_reason_);
}

control::StatusReply CoordinatorState::status(Clock::time_point now) const {
  control::StatusReply reply;
  reply.set_term(term_);
  reply.set_view(view_number_);
  reply.set_elapsed_seconds(std::chrono::duration<double>(now - started_at_).count());
  reply.set_phase(phase_text());
  const auto waiting = static_cast<std::size_t>(
      std::ranges::count_if(roster_.records(), [&](const auto& entry) { return waits_for_a_copy(entry.second); }));
  for (const auto& [id, record] : roster_.records()) {
    if (record.info.role == Role::observer) {
      continue;
    }
    control::MemberStatus& row = *reply.add_members();
    *row.mutable_member() = to_wire(record.info);
    row.set_state(record.state == Record::State::alive          ? control::MemberStatus::ALIVE
                  : record.state == Record::State::reconnecting ? control::MemberStatus::RECONNECTING
                  : record.state == Record::State::left         ? control::MemberStatus::LEFT
                                                                : control::MemberStatus::LOST);
    *row.mutable_progress() = record.progress;
    if (waits_for_a_copy(record)) {
      const std::string missing = missing_for_a_copy(waiting);
      row.mutable_progress()->set_operation(missing.empty() ? "waiting" : "waiting: " + missing);
    }
    row.set_seconds_since_heard(std::chrono::duration<double>(now - record.heard_at).count());
    row.set_reason(record.reason);
    if (const Straggler* straggler = find_straggler(record); straggler != nullptr) {
      row.set_slow(describe(*straggler));
    }
  }
  return reply;
}

}  // namespace distbelief
