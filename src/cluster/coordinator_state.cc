#include "cluster/coordinator_state.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace distbelief {
namespace {

using std::chrono::milliseconds;

// At a job's end everybody leaves, and nobody needs to know at once.
constexpr milliseconds kViewDelayAfterLeave{250};
constexpr milliseconds kViewDelayWhenAwaited{10};

}  // namespace

CoordinatorState::CoordinatorState(JobRules rules, std::uint64_t term, Clock::time_point now,
                                   const control::SavedJob* before)
    : rules_(std::move(rules)),
      term_(term),
      started_at_(now),
      began_(rules_.made_at),
      now_(now),
      join_deadline_(now + rules_.join_limit),
      next_incarnation_(first_of_term(term)),
      roster_(rules_.workers, rules_.servers),
      restarts_used_(rules_.restarts_before) {
  check(rules_.workers >= 1 && rules_.servers >= 0, "a job has at least one worker");
  if (rules_.samples_per_epoch > 0) {
    leases_.emplace(LeaseTable::Options{.samples_per_epoch = rules_.samples_per_epoch,
                                        .first_epoch = rules_.first_epoch,
                                        .epochs = rules_.epochs,
                                        .first_id = first_of_term(term)});
  }
  if (before != nullptr) {
    restore(*before);
  }
}

std::vector<CoordinatorState::Action> CoordinatorState::take_actions() {
  std::vector<Action> actions;
  if (std::exchange(unsaved_, false)) {
    actions.emplace_back(Persist{saved()});
  }
  for (Action& action : std::exchange(actions_, {})) {
    actions.push_back(std::move(action));
  }
  return actions;
}

// Events.

void CoordinatorState::begin_event(Clock::time_point now) {
  const auto gap = now - now_;
  now_ = std::max(now, now_);
  if (gap <= rules_.gap_limit) {
    return;
  }
  // This process was stopped, or the machine slept. What others did meanwhile is still in the sockets.
  log(fmt::format("stood still for {:.1f} s; all limits begin again", std::chrono::duration<double>(gap).count()));
  join_deadline_ += gap;
  stop_deadline_ += gap;
  starting_since_ += gap;
  for (auto* limit : {&grace_until_, &without_workers_since_}) {
    if (*limit) {
      **limit += gap;
    }
  }
  for (auto& [id, record] : roster_.records()) {
    record.heard_at = now_;
    record.disconnected_at = now_;
    record.exit_at = now_;
    record.moved_at += gap;
    record.expected_until += gap;
  }
}

void CoordinatorState::received(ConnectionId connection, ControlMessage message, Clock::time_point now) {
  begin_event(now);
  Record* record = roster_.find_connection(connection);
  if (record == nullptr) {
    if (const auto* asks = std::get_if<control::Join>(&message)) {
      join(connection, *asks);
    } else {
      actions_.emplace_back(Close{connection, fmt::format("sent a {} before it joined", kind_name(kind_of(message)))});
    }
  } else {
    record->heard_at = now_;
    record->received += is_numbered(message) ? 1 : 0;
    std::visit([&](const auto& content) { on(*record, content); }, message);
  }
  settle();
}

void CoordinatorState::received_garbage(ConnectionId connection, const std::string& reason, Clock::time_point now) {
  begin_event(now);
  actions_.emplace_back(Close{connection, "sent " + reason});
}

void CoordinatorState::closed(ConnectionId connection, Clock::time_point now) {
  begin_event(now);
  Record* record = roster_.find_connection(connection);
  if (record == nullptr) {
    return;
  }
  roster_.disconnect(*record);
  record->state = Record::State::reconnecting;
  record->was_silent = now_ - record->heard_at > 2 * rules_.heartbeat;
  record->disconnected_at = now_;
  if (record->exit) {
    declare_dead_by_exit(*record);
  }
  settle();
}

void CoordinatorState::tick(Clock::time_point now) {
  begin_event(now);
  look_for_the_dead();
  look_for_stalls();
  look_for_stragglers();
  look_for_wishes_to_leave();
  look_for_replacements();
  if (phase_ == Phase::joining && now_ >= join_deadline_) {
    const double limit = std::chrono::duration<double>(rules_.join_limit).count();
    const bool lacks_launcher = rules_.has_launcher && roster_.living(Role::launcher) == 0;
    const std::string missing = roster_.missing();
    fail(fmt::format("{} did not join within {:.0f} s; missing: {}", roster_.missing_count(), limit,
                     missing.empty() && lacks_launcher ? "launcher" : missing));
  }
  if (view_due_ && now_ >= *view_due_ && phase_ != Phase::ended) {
    issue_view();
  }
  settle();
}

void CoordinatorState::stop(const std::string& reason, Clock::time_point now) {
  begin_event(now);
  begin_stop(reason, rules_.stop_limit);
  settle();
}

// What members say.

void CoordinatorState::on(Record& record, const control::Heartbeat& heartbeat) {
  if (!record.outbox.acknowledge(heartbeat.received())) {
    misbehaves(record, fmt::format("a Heartbeat that acknowledges {} messages", heartbeat.received()));
    return;
  }
  if (heartbeat.progress().step() != record.progress.step()) {
    record.moved_at = now_;
    record.stall_told = false;
  }
  record.progress = heartbeat.progress();
  control::Heard heard;
  heard.set_term(term_);
  heard.set_received(record.received);
  tell(record, heard);
}

void CoordinatorState::on(Record& record, const control::Leave& leave) {
  control::Heard heard;  // tells it that nothing it sent was lost
  heard.set_term(term_);
  heard.set_received(record.received);
  tell(record, heard);
  actions_.emplace_back(Close{record.connection, "left"});
  roster_.disconnect(record);
  record.state = Record::State::left;
  record.left_at = now_;
  record.succeeded = leave.succeeded();
  record.bad_input = leave.bad_input();
  record.reason = leave.result();
  last_worker_was_lost_ = last_worker_was_lost_ && record.info.role != Role::worker;
  record.outbox.clear();
  unsaved_ = true;
  if (record.info.role == Role::observer) {
    return;
  }
  const bool was_asked = leave.succeeded() && leave.result().starts_with("left");
  const std::string text = was_asked
                               ? fmt::format("{} {}", describe(record.info), leave.result())
                               : fmt::format("{} {}: {}", describe(record.info), leave.succeeded() ? "left" : "failed",
                                             leave.result().empty() ? "it said no more" : leave.result());
  log(text);
  if (record.info.role == Role::standby) {
    if (record.leaving && leave.result() != kTakesOver) {  // it was about to go when it was called
      replacement_failed(record, leave.result());
    }
    return;
  }
  if (record.info.role == Role::launcher) {
    begin_stop(text, rules_.launcher_stop_limit);
    return;
  }
  if (const bool leases = lease_holder(record).info.id == record.info.id; leases || !leave.succeeded()) {
    fence(record);  // others of a copy have nothing under way when they are done
  }
  if (phase_ == Phase::joining) {
    roster_.vacate(record);
    if (!leave.succeeded()) {
      fail(text, leave.bad_input());
    }
    return;
  }
  const bool never_began = leave.result() == kNeverBegan;  // and others of its copy wait for it
  if (rules_.copies_come_whole() && record.info.role == Role::worker && (!leave.succeeded() || never_began)) {
    break_copy_of(record);
  }
  const bool one_is_lost = std::ranges::any_of(roster_.records(), [](const auto& entry) {
    return entry.second.takes_part() && entry.second.state == Record::State::lost;
  });
  if (!leave.succeeded() && !one_is_lost) {  // after a loss the others' ends are known to come
    tell_people(text, record.info.id);
  }
  const bool somebody_trains = std::ranges::any_of(roster_.records(), [](const auto& entry) {
    return entry.second.info.role == Role::worker && entry.second.living();
  });
  // By servers, which end when all have gone; where a network is cut those who stay wait for nobody who leaves.
  const bool awaited = (record.leaving && !rules_.workers_hold_parts()) || !somebody_trains;
  change_view(text, awaited ? kViewDelayWhenAwaited : kViewDelayAfterLeave);
}

void CoordinatorState::on(Record& record, const control::Notice& notice) {
  tell_people(notice.text(), record.info.id, notice.number());
}

void CoordinatorState::on(Record& record, const control::StatusRequest& /*request*/) { tell(record, status(now_)); }

void CoordinatorState::on(Record& record, const control::Order& order) {
  const bool own =
      record.takes_part() && order.what() == control::Order::LEAVE && order.rank() == record.info.rank.value;
  if (record.takes_part() && !own) {
    misbehaves(record, "an Order");
    return;
  }
  if (own) {
    if (!record.wants_to_leave) {
      log(fmt::format("{} wants to leave: {}", describe(record.info), order.reason()));
      record.wants_to_leave = now_;
    }
    return;
  }
  log(fmt::format("{} orders: {}", describe(record.info), order.reason()));
  if (order.what() == control::Order::STOP) {
    begin_stop(order.reason(), rules_.stop_limit);
    return;
  }
  if (order.what() == control::Order::LEAVE) {
    tell(record, order_to_leave(order));
    return;
  }
  if (order.what() == control::Order::SCALE) {
    tell(record, order_to_scale(order));
    return;
  }
  control::Order forwarded = order;
  forwarded.set_term(term_);
  tell_all(forwarded, &record);
}

template <typename Other>
void CoordinatorState::on(Record& record, const Other& other) {
  misbehaves(record, "a " + kind_name(kind_of(other)));
}

void CoordinatorState::misbehaves(Record& record, const std::string& what) {
  const std::string reason = fmt::format("sent {}, which is not for a {} to send", what, role_name(record.info.role));
  log(fmt::format("{} {}", describe(record.info), reason));
  actions_.emplace_back(Close{record.connection, reason});  // closed() comes, and then it has its time to reconnect
}

// Speaking.

void CoordinatorState::tell(Record& record, SharedControlMessage message) {
  if (is_numbered(*message)) {
    record.outbox.push(message);
  }
  if (record.connection != ConnectionId{}) {
    actions_.emplace_back(Send{record.connection, std::move(message)});
  }
}

void CoordinatorState::tell(Record& record, ControlMessage message) {
  tell(record, std::make_shared<const ControlMessage>(std::move(message)));
}

void CoordinatorState::tell_all(ControlMessage message, const Record* except) {
  const auto shared = std::make_shared<const ControlMessage>(std::move(message));
  for (auto& [id, record] : roster_.records()) {
    if (record.living() && &record != except) {
      tell(record, shared);
    }
  }
}

void CoordinatorState::tell_people(const std::string& text, std::uint64_t member, std::uint64_t number) {
  control::Notice notice;
  notice.set_text(text);
  notice.set_member(member);
  notice.set_number(number);
  const auto shared = std::make_shared<const ControlMessage>(std::move(notice));
  for (auto& [id, record] : roster_.records()) {
    if (record.living() && !record.takes_part()) {
      tell(record, shared);
    }
  }
}

}  // namespace distbelief
