#include "cluster/coordinator_state.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace distbelief {
namespace {

using std::chrono::milliseconds;

// Several changes that come together make one view. At a job's end everybody leaves, and nobody needs to know at once.
constexpr milliseconds kViewDelayAfterLeave{250};
constexpr std::size_t kReasonsShown = 3;

std::string joined(const std::vector<std::string>& reasons) {
  std::string text;
  for (std::size_t i = 0; i < std::min(reasons.size(), kReasonsShown); ++i) {
    text += (i == 0 ? "" : "; ") + reasons[i];
  }
  return reasons.size() <= kReasonsShown ? text : fmt::format("{}; and {} more", text, reasons.size() - kReasonsShown);
}

/// Numbers given under one term are never given under another.
std::uint64_t first_of_term(std::uint64_t term) { return (term << 32) + 1; }

}  // namespace

CoordinatorState::CoordinatorState(JobRules rules, std::uint64_t term, Clock::time_point now)
    : rules_(std::move(rules)),
      term_(term),
      started_at_(now),
      now_(now),
      join_deadline_(now + rules_.join_limit),
      next_incarnation_(first_of_term(term)),
      roster_(rules_.workers, rules_.servers),
      leases_({.samples_per_epoch = rules_.samples_per_epoch,
               .first_epoch = rules_.first_epoch,
               .epochs = rules_.epochs,
               .first_id = first_of_term(term)}) {
  check(rules_.workers >= 1 && rules_.servers >= 0, "a job has at least one worker");
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
  for (auto& [id, record] : roster_.records()) {
    record.heard_at = now_;
    record.disconnected_at = now_;
    record.exit_at = now_;
    record.moved_at += gap;
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
  record.succeeded = leave.succeeded();
  record.reason = leave.result();
  record.outbox.clear();
  if (record.info.role == Role::observer) {
    return;
  }
  const std::string text = fmt::format("{} {}: {}", describe(record.info), leave.succeeded() ? "left" : "failed",
                                       leave.result().empty() ? "it said no more" : leave.result());
  log(text);
  if (record.info.role == Role::launcher) {
    begin_stop(text, rules_.launcher_stop_limit);
    return;
  }
  fence(record);
  if (phase_ == Phase::joining) {
    roster_.vacate(record);
    if (!leave.succeeded()) {
      fail(text);
    }
    return;
  }
  if (!leave.succeeded()) {
    tell_people(text, record.info.id);
  }
  change_view(text, kViewDelayAfterLeave);
}

void CoordinatorState::on(Record& record, const control::Notice& notice) { tell_people(notice.text(), record.info.id); }

void CoordinatorState::on(Record& record, const control::StatusRequest& /*request*/) { tell(record, status(now_)); }

void CoordinatorState::on(Record& record, const control::Order& order) {
  if (record.takes_part()) {
    misbehaves(record, "an Order");
    return;
  }
  log(fmt::format("{} orders: {}", describe(record.info), order.reason()));
  if (order.what() == control::Order::STOP) {
    begin_stop(order.reason(), rules_.stop_limit);
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

// Leases.

void CoordinatorState::on(Record& record, const control::LeaseRequest& request) {
  if (record.info.role != Role::worker) {
    misbehaves(record, "a LeaseRequest");
    return;
  }
  lease_requests_.push_back({record.info.id, request.samples()});
  serve_leases();
}

void CoordinatorState::on(Record& record, const control::LeaseDone& done) {
  if (leases_.complete(record.info.id, done.lease())) {
    serve_leases();
    return;
  }
  control::Fenced fenced;
  fenced.set_term(term_);
  fenced.set_incarnation(record.info.incarnation);
  fenced.set_reason(fmt::format("lease {} is not with {}", done.lease(), describe(record.info)));
  tell(record, fenced);
}

void CoordinatorState::serve_leases() {
  while (!lease_requests_.empty()) {
    const WaitingRequest request = lease_requests_.front();
    const auto answer = leases_.request(request.member, request.samples);
    if (std::holds_alternative<LeaseTable::Wait>(answer)) {
      return;
    }
    lease_requests_.pop_front();
    control::LeaseGrant grant;
    grant.set_low_water(leases_.low_water());
    if (const auto* lease = std::get_if<Lease>(&answer)) {
      grant.set_lease(lease->id);
      grant.set_epoch(lease->epoch);
      grant.set_first(lease->first);
      grant.set_count(lease->count);
      grant.set_next_push(lease->next_push);
    } else {
      grant.set_finished(true);
    }
    Record* record = roster_.find(request.member);
    check(record != nullptr && record->living(), "only the living ask for leases");
    tell(*record, grant);
  }
}

// The job as a whole.

void CoordinatorState::settle() {
  if (phase_ == Phase::joining && roster_.complete() && (!rules_.has_launcher || roster_.living(Role::launcher) > 0)) {
    phase_ = Phase::running;
    roster_.begin();
    view_reasons_ = {"all processes joined"};
    issue_view();
  }
  const int workers = roster_.living(Role::worker);
  if (phase_ == Phase::running && workers == 0) {
    const bool done = std::any_of(roster_.records().begin(), roster_.records().end(), [](const auto& entry) {
      return entry.second.info.role == Role::worker && entry.second.state == Record::State::left;
    });
    if (done) {
      begin_stop("all workers are done", rules_.stop_limit);
    } else {
      fail("all workers are lost");
    }
  }
  if (phase_ == Phase::stopping && ((workers == 0 && roster_.living(Role::server) == 0) || now_ >= stop_deadline_)) {
    end();
  }
}

void CoordinatorState::begin_stop(const std::string& reason, milliseconds limit) {
  if (phase_ == Phase::ended) {
    return;
  }
  if (phase_ == Phase::stopping) {
    stop_deadline_ = std::min(stop_deadline_, now_ + limit);
    return;
  }
  phase_ = Phase::stopping;
  stop_reason_ = reason;
  stop_deadline_ = now_ + limit;
  log("stopping: " + reason);
  control::Order order;
  order.set_what(control::Order::STOP);
  order.set_term(term_);
  order.set_reason(reason);
  tell_all(order);
}

void CoordinatorState::fail(const std::string& reason) {
  if (phase_ != Phase::ended && !failure_) {
    failure_ = reason;
  }
  begin_stop(reason, rules_.has_launcher && roster_.living(Role::launcher) == 0 ? rules_.launcher_stop_limit
                                                                                : rules_.stop_limit);
}

void CoordinatorState::end() {
  phase_ = Phase::ended;
  std::string stragglers;
  for (const Record* member : roster_.members()) {
    stragglers += (stragglers.empty() ? "" : ", ") + describe(member->info);
  }
  for (const auto& [id, record] : roster_.records()) {
    if (!failure_ && record.info.role == Role::worker && record.state == Record::State::left && !record.succeeded) {
      failure_ = fmt::format("{} failed: {}", describe(record.info), record.reason);
    }
  }
  if (!failure_ && !stragglers.empty()) {
    failure_ = stop_reason_;
  }
  End end{!failure_.has_value(), failure_.value_or(stop_reason_)};
  if (!stragglers.empty()) {
    end.reason += "; did not end in time: " + stragglers;
  }
  log("ended: " + end.reason);
  control::Ended ended;
  ended.set_succeeded(end.succeeded);
  ended.set_reason(end.reason);
  tell_all(ended);
  actions_.emplace_back(end);
}

void CoordinatorState::change_view(const std::string& reason, milliseconds delay) {
  view_reasons_.push_back(reason);
  view_due_ = std::min(view_due_.value_or(now_ + delay), now_ + delay);
}

void CoordinatorState::issue_view() {
  view_due_.reset();
  control::View view;
  view.set_term(term_);
  view.set_number(++view_number_);
  view.set_reason(joined(std::exchange(view_reasons_, {})));
  view.set_complete(roster_.complete());
  for (const Record* member : roster_.members()) {
    *view.add_members() = to_wire(member->info);
  }
  log(fmt::format("view {}: {} members; {}", view_number_, view.members_size(), view.reason()));
  tell_all(view);
}

std::string CoordinatorState::phase_text() const {
  switch (phase_) {
    case Phase::joining:
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
    row.set_seconds_since_heard(std::chrono::duration<double>(now - record.heard_at).count());
    row.set_reason(record.reason);
  }
  return reply;
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

void CoordinatorState::tell_people(const std::string& text, std::uint64_t member) {
  control::Notice notice;
  notice.set_text(text);
  notice.set_member(member);
  const auto shared = std::make_shared<const ControlMessage>(std::move(notice));
  for (auto& [id, record] : roster_.records()) {
    if (record.living() && !record.takes_part()) {
      tell(record, shared);
    }
  }
}

}  // namespace distbelief
