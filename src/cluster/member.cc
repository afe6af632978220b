#include "cluster/member.h"

#include "cluster/member_session.h"

namespace distbelief {
namespace {

control::Order::What to_wire(Order::What what) {
  switch (what) {
    case Order::What::stop:
      return control::Order::STOP;
    case Order::What::checkpoint:
      return control::Order::CHECKPOINT;
    case Order::What::leave:
      return control::Order::LEAVE;
    case Order::What::scale:
      return control::Order::SCALE;
    case Order::What::start:
      return control::Order::START;
    case Order::What::take_over:
      break;
  }
  return control::Order::TAKE_OVER;
}

}  // namespace

Member::Joined Member::join(const Address& coordinator, JoinRequest request, Clock::time_point deadline) {
  auto session = std::make_unique<Session>(coordinator, std::move(request));
  if (Session::Opened opened = session->open(deadline); !opened.problem.empty()) {
    return {nullptr, std::move(opened.problem), opened.refused};
  }
  return {std::unique_ptr<Member>(new Member(std::move(session)))};
}

Member::Member(std::unique_ptr<Session> session) : session_(std::move(session)) {}
Member::~Member() = default;

const MemberInfo& Member::self() const { return session_->self(); }
std::uint64_t Member::term() const { return session_->term(); }
Clock::time_point Member::heard_at() const { return session_->heard_at(); }
std::string Member::shares() const { return session_->shares(); }
View Member::view() const { return session_->view(); }
std::optional<View> Member::wait_for_view(std::uint64_t number, Clock::time_point deadline) const {
  return session_->wait_for_view(number, deadline);
}

void Member::notice(const std::string& text) { session_->say_notice(text); }

void Member::order(const Order& order) {
  control::Order wire;
  wire.set_what(to_wire(order.what));
  wire.set_reason(order.reason);
  wire.set_rank(order.rank.value);
  wire.set_workers(order.workers);
  wire.set_servers(order.servers);
  session_->say(wire);
}

void Member::report_exit(const ProcessExit& exit) {
  control::ExitSeen seen;
  seen.set_launch(exit.launch);
  seen.set_name(exit.name);
  seen.set_host(exit.host);
  seen.set_pid(exit.pid);
  seen.set_exit_code(exit.exit_code);
  seen.set_signal(exit.signal);
  seen.set_starts_again(exit.starts_again);
  session_->say(seen);
}

std::optional<JobStatus> Member::request_status(Clock::time_point deadline) {
  return session_->request_status(deadline);
}

std::optional<std::string> Member::request_configuration(Clock::time_point deadline) {
  return session_->request_configuration(deadline);
}

Member::LeaseAnswer Member::request_lease(std::int64_t samples, Clock::time_point deadline) {
  return session_->request_lease(samples, deadline);
}

void Member::report_leases(const std::vector<LeaseReport>& reports, std::uint64_t answers) {
  control::LeaseReports message;
  message.set_answers(answers);
  for (const LeaseReport& report : reports) {
    *message.add_reports() = to_wire(report);
  }
  session_->say(message);
}

void Member::plan_leases(const LeaseTable::Options& plan, std::uint64_t answers) {
  control::LeasePlan message;
  message.set_samples_per_epoch(plan.samples_per_epoch);
  message.set_first_epoch(plan.first_epoch);
  message.set_epochs(plan.epochs);
  message.set_first_lease(plan.first_id);
  message.set_first_position(plan.first_position);
  message.set_warm_samples(plan.warm_samples);
  message.set_answers(answers);
  for (const Lease& lease : plan.returned) {
    *message.add_returned() = to_wire(lease);
  }
  session_->say(message);
}

void Member::complete_lease(std::uint64_t lease) {
  control::LeaseDone done;
  done.set_lease(lease);
  session_->say(done);
}

void Member::give_back_lease(std::uint64_t lease, std::uint64_t next_push) {
  control::LeaseDone done;
  done.set_lease(lease);
  done.set_returned(true);
  done.set_next_push(next_push);
  session_->say(done);
}

void Member::confirm_fence(std::uint64_t incarnation, const std::optional<std::vector<LeaseProgress>>& leases) {
  control::FenceConfirmed confirmed;
  confirmed.set_incarnation(incarnation);
  confirmed.set_holds_nothing(!leases);
  for (const LeaseProgress& progress : leases.value_or(std::vector<LeaseProgress>())) {
    auto& lease = *confirmed.add_leases();
    lease.set_lease(progress.lease);
    lease.set_next_push(progress.next_push);
  }
  session_->say(confirmed);
}

void Member::tell_of_servers(const ServerNews& news) {
  control::ServerNews message;
  message.set_what(static_cast<control::ServerHistory::Event::What>(news.what));
  message.set_shelf(news.shelf);
  message.set_primary(news.primary.value);
  message.set_backup(news.backup.value);
  message.set_changes(news.changes);
  session_->say(message);
}

void Member::tell_shares(const std::string& shares) {
  control::Measured measured;
  measured.set_shares(shares);
  session_->say(measured);
}

void Member::chaos_due(const std::string& event) {
  control::ChaosDue due;
  due.set_event(event);
  session_->say(due);
}

bool Member::flush(Clock::time_point deadline) { return session_->flush(deadline); }
void Member::cut_off(Clock::time_point until) { session_->cut_off(until); }

bool Member::leave(bool succeeded, const std::string& result, Clock::time_point deadline, bool bad_input) {
  return session_->leave(succeeded, result, deadline, bad_input);
}

}  // namespace distbelief
