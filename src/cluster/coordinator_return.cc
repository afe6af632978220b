// How a coordinator takes the place of one that died: what it goes on from, how members come back to it, and how it
// finds out which leases there are.
#include <fmt/format.h>

#include <algorithm>

#include "cluster/coordinator_state.h"

namespace distbelief {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kViewDelay{10};

control::MemberStatus::State saved_state(const Record& record) {
  return record.living()                       ? control::MemberStatus::ALIVE
         : record.state == Record::State::left ? control::MemberStatus::LEFT
                                               : control::MemberStatus::LOST;
}

}  // namespace

control::SavedJob CoordinatorState::saved() const {
  control::SavedJob job;
  job.set_term(term_);
  job.set_began_milliseconds(began_.count());
  job.set_token(rules_.token);
  job.set_configuration(rules_.configuration);
  job.set_invitation(rules_.invitation);
  job.set_restarts_used(static_cast<std::uint32_t>(restarts_used_));
  job.set_starting(static_cast<std::uint32_t>(starting_));
  job.set_starting_newcomers(static_cast<std::uint32_t>(starting_newcomers_));
  job.set_starting_servers(static_cast<std::uint32_t>(starting_servers_));
  job.set_missing_servers(static_cast<std::uint32_t>(missing_servers_));
  job.set_most_workers(static_cast<std::uint32_t>(most_workers_));
  job.set_missing_copies(static_cast<std::uint32_t>(missing_copies_));
  job.mutable_broken_copies()->Add(broken_copies_.begin(), broken_copies_.end());
  job.set_shares(shares_);
  job.set_phase(static_cast<std::uint32_t>(std::min(phase_, Phase::stopping)));  // its end may not have been heard
  job.set_view(view_number_);
  job.set_view_due(!view_reasons_.empty());
  job.set_next_member(next_member_);
  job.set_leases_planned(leases_planned_);
  job.set_stop_reason(stop_reason_);
  job.set_stop_milliseconds(stop_limit_.count());
  job.set_no_workers(no_workers_);
  job.set_failed(failure_.has_value());
  job.set_failure(failure_.value_or(""));
  job.set_bad_input(bad_input_);
  job.set_last_worker_was_lost(last_worker_was_lost_);
  for (const std::uint64_t launch : ended_unjoined_) {
    job.add_ended_unjoined(launch);
  }
  *job.mutable_servers() = server_history_;
  for (const std::string& event : chaos_done_) {
    job.add_chaos_done(event);
  }
  for (const auto& [id, record] : roster_.records()) {
    if (record.info.role == Role::observer) {
      continue;
    }
    control::SavedMember& member = *job.add_members();
    *member.mutable_member() = to_wire(record.info);
    member.set_state(saved_state(record));
    member.set_nonce(record.nonce);
    member.set_launch(record.launch);
    member.set_succeeded(record.succeeded);
    member.set_bad_input(record.bad_input);
    member.set_reason(record.reason);
    member.set_leaving(record.leaving);
    member.set_grows(record.grows);
    member.set_called_rank(record.called_rank);
    member.set_may_come_again(record.may_come_again);
  }
  return job;
}

void CoordinatorState::restore(const control::SavedJob& before) {
  phase_ = static_cast<Phase>(std::min<std::uint32_t>(before.phase(), static_cast<std::uint32_t>(Phase::stopping)));
  began_ = std::min(milliseconds(before.began_milliseconds()), rules_.made_at);
  started_at_ = now_ - (rules_.made_at - began_);
  view_number_ = before.view();
  next_member_ = before.next_member();
  leases_planned_ = before.leases_planned();
  stop_reason_ = before.stop_reason();
  stop_limit_ = milliseconds(before.stop_milliseconds());
  stop_deadline_ = now_ + stop_limit_;
  no_workers_ = before.no_workers();
  restarts_used_ = static_cast<int>(before.restarts_used());
  starting_ = static_cast<int>(before.starting());
  starting_newcomers_ = static_cast<int>(before.starting_newcomers());
  starting_servers_ = static_cast<int>(before.starting_servers());
  missing_servers_ = static_cast<int>(before.missing_servers());
  most_workers_ = static_cast<int>(before.most_workers());
  missing_copies_ = static_cast<int>(before.missing_copies());
  broken_copies_.insert(before.broken_copies().begin(), before.broken_copies().end());
  shares_ = before.shares();
  last_worker_was_lost_ = before.last_worker_was_lost();
  ended_unjoined_.insert(before.ended_unjoined().begin(), before.ended_unjoined().end());
  starting_since_ = now_;
  server_history_ = before.servers();
  server_history_.set_term(term_);
  chaos_done_.insert(before.chaos_done().begin(), before.chaos_done().end());
  if (before.failed()) {
    failure_ = before.failure();
    bad_input_ = before.bad_input();
  }
  if (view_number_ > 0) {
    roster_.begin();
  }
  int missing = 0;
  for (const control::SavedMember& saved : before.members()) {
    Record record;
    record.info = from_wire(saved.member());
    record.state = saved.state() == control::MemberStatus::ALIVE  ? Record::State::reconnecting
                   : saved.state() == control::MemberStatus::LEFT ? Record::State::left
                                                                  : Record::State::lost;
    record.nonce = saved.nonce();
    record.launch = saved.launch();
    record.succeeded = saved.succeeded();
    record.bad_input = saved.bad_input();
    record.reason = saved.reason();
    record.leaving = saved.leaving();
    record.grows = saved.grows();
    record.called_rank = saved.called_rank();
    record.may_come_again = saved.may_come_again();
    if (record.called_rank >= 0) {
      roster_.keep_free((record.called_rank / rules_.parts + 1) * rules_.parts);
    }
    record.heard_at = record.disconnected_at = record.moved_at = now_;
    record.expected_until = now_ + rules_.replacement_limit;
    record.is_awaited = record.living();
    missing += record.living() ? 1 : 0;
    roster_.restore(std::move(record));
  }
  grace_until_ = now_ + rules_.return_grace;
  if (rules_.copies_come_whole() && phase_ == Phase::running && roster_.living(Role::worker) == 0) {
    without_workers_since_ = now_;  // members know that some are awaited
  }
  if (before.view_due()) {
    change_view("what changed while there was no coordinator", kViewDelay);
  }
  if (leases_planned_) {
    recovery_.emplace();
  }
  log(fmt::format("takes the place of the coordinator of term {}; {} members should come back within {:.1f} s",
                  before.term(), missing, std::chrono::duration<double>(rules_.return_grace).count()));
}

void CoordinatorState::on(Record& record, const control::ChaosDue& due) {
  if (std::ranges::find(rules_.deaths, due.event()) == rules_.deaths.end()) {
    misbehaves(record, "a ChaosDue");
    return;
  }
  if (chaos_done_.insert(due.event()).second) {  // others say so too, and to its successor again
    unsaved_ = true;
    log(fmt::format("chaos: dies of '{}'", due.event()));
    actions_.emplace_back(Die{});
  }
}

bool CoordinatorState::awaits_return() const {
  return grace_until_ && now_ < *grace_until_ && std::ranges::any_of(roster_.records(), [](const auto& entry) {
           return entry.second.living() && entry.second.connection == ConnectionId{} &&
                  entry.second.info.role != Role::observer;
         });
}

void CoordinatorState::begin_anew(Record& record, const control::Join& join) {
  record.received = 0;
  // What was told in this term while it was away is news to it; what it asked for it asks again.
  std::deque<SharedControlMessage> waiting;
  for (const SharedControlMessage& message : record.outbox.waiting()) {
    if (std::holds_alternative<control::Notice>(*message) || std::holds_alternative<control::Lost>(*message)) {
      waiting.push_back(message);
    }
  }
  record.outbox.restart(std::move(waiting));
  if (server_history_.events_size() > 0) {
    record.outbox.push(std::make_shared<const ControlMessage>(server_history_));
  }
  if (view_number_ > 0 && !view_due_ && phase_ != Phase::joining) {
    record.outbox.push(std::make_shared<const ControlMessage>(make_view("the coordinator came back")));
  }
  if (phase_ == Phase::stopping) {
    record.outbox.push(std::make_shared<const ControlMessage>(stop_order()));
  } else if (record.leaving && !may_serve(record) &&  // which hear of it as what became of servers
             !(rules_.workers_hold_parts() && record.info.role == Role::worker)) {  // whom views tell
    control::Order order;
    const bool is_called = record.info.role == Role::standby;
    order.set_what(is_called ? control::Order::TAKE_OVER : control::Order::LEAVE);
    order.set_term(term_);
    order.set_reason("it was asked to before the coordinator came back");
    order.set_rank(is_called ? record.called_rank : record.info.rank.value);
    record.outbox.push(std::make_shared<const ControlMessage>(order));
  }
  if (recovery_) {
    std::vector<Lease>& held = recovery_->held[record.info.id];
    held.clear();
    for (const control::OpenLease& lease : join.holds()) {
      held.push_back(from_wire(lease));
    }
  }
}

std::vector<Record*> CoordinatorState::lease_servers() {
  const bool all_serve = rules_.servers == 0 && !rules_.workers_serve;  // who is lost takes the job along
  std::vector<Record*> servers;
  for (const Record* member : roster_.members()) {
    if (all_serve || serves(*member)) {
      servers.push_back(roster_.find(member->info.id));
    }
  }
  return servers;
}

void CoordinatorState::recover_leases() {
  if (!recovery_ || recovery_->question != 0 || view_due_ || !fences_.empty() || phase_ == Phase::ended) {
    return;
  }
  const std::vector<const Record*> members = roster_.members();
  if (std::ranges::any_of(members, [](const Record* member) { return member->connection == ConnectionId{}; })) {
    return;
  }
  const std::vector<Record*> servers = lease_servers();
  if (servers.empty()) {  // they were done, and so is all that could be leased
    recovery_.reset();
    leases_.emplace(LeaseTable::Options{.first_id = first_of_term(term_)});
    serve_leases();
    return;
  }
  recovery_->question = ++last_question_;
  recovery_->answers.clear();
  recovery_->unanswered.clear();
  control::LeaseQuestion question;
  question.set_term(term_);
  question.set_number(recovery_->question);
  for (Record* server : servers) {
    recovery_->unanswered.insert(server->info.id);
    tell(*server, question);
  }
}

void CoordinatorState::on(Record& record, const control::LeaseReports& reports) {
  if (!recovery_ || reports.answers() != recovery_->question || recovery_->unanswered.erase(record.info.id) == 0) {
    return;  // it was asked again
  }
  recovery_->answers[record.info.id] = reports;
  if (recovery_->unanswered.empty()) {
    plan_recovered_leases();
  }
}

void CoordinatorState::plan_recovered_leases() {
  control::LeaseQuestion question;
  question.set_term(term_);
  question.set_number(recovery_->question);
  question.set_for_plan(true);
  question.set_first_lease(first_of_term(term_));
  for (const auto& [server, answer] : recovery_->answers) {
    for (const control::LeaseReport& report : answer.reports()) {
      *question.add_reports() = report;
    }
  }
  for (const auto& [worker, leases] : recovery_->held) {
    for (const Lease& lease : leases) {
      *question.add_held() = to_wire(lease);
    }
  }
  for (Record* server : lease_servers()) {  // they know which of them leads
    tell(*server, question);
  }
}

}  // namespace distbelief
