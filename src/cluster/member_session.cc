#include "cluster/member_session.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>

#include "base/check.h"

namespace distbelief {
namespace {

using std::chrono::milliseconds;

// Longer between two rounds of the thread: this process was stopped, and cannot blame the coordinator's silence.
constexpr milliseconds kGapLimit{3000};
// Said once more to a coordinator that came back: what the one before had heard may not have reached anybody.
constexpr std::size_t kNoticesKept = 32;

std::uint64_t draw_nonce() {
  std::uint64_t nonce = 0;
  check(::getrandom(&nonce, sizeof nonce, 0) == sizeof nonce, "getrandom gave no bytes");
  return nonce | 1;  // 0 means none
}

MemberStatus from_wire(const control::MemberStatus& row) {
  const control::Progress& progress = row.progress();
  return {.member = distbelief::from_wire(row.member()),
          .state = static_cast<MemberStatus::State>(row.state()),
          .progress = {.step = progress.step(),
                       .epoch = progress.epoch(),
                       .samples_per_second = progress.samples_per_second(),
                       .loss = progress.loss(),
                       .operation = progress.operation(),
                       .waits_for_others = progress.waits_for_others(),
                       .times = {progress.timed_steps(), progress.computed_seconds(), progress.loaded_seconds(),
                                 progress.linked_seconds()},
                       .share = progress.share()},
          .operation_seconds = progress.operation_seconds(),
          .seconds_since_heard = row.seconds_since_heard(),
          .reason = row.reason(),
          .slow = row.slow()};
}

Order::What what_from_wire(control::Order::What what) {
  switch (what) {
    case control::Order::CHECKPOINT:
      return Order::What::checkpoint;
    case control::Order::LEAVE:
      return Order::What::leave;
    case control::Order::SCALE:
      return Order::What::scale;
    case control::Order::START:
      return Order::What::start;
    case control::Order::TAKE_OVER:
      return Order::What::take_over;
    default:
      return Order::What::stop;
  }
}

JobStatus from_wire(const control::StatusReply& reply) {
  JobStatus status{
      .term = reply.term(), .view = reply.view(), .elapsed_seconds = reply.elapsed_seconds(), .phase = reply.phase()};
  for (const control::MemberStatus& row : reply.members()) {
    status.members.push_back(from_wire(row));
  }
  std::stable_sort(status.members.begin(), status.members.end(),
                   [](const MemberStatus& a, const MemberStatus& b) { return a.member.rank < b.member.rank; });
  return status;
}

}  // namespace

Member::Session::Session(Address coordinator, JoinRequest request)
    : request_(std::move(request)),
      nonce_(draw_nonce()),
      address_(std::move(coordinator)),
      worked_(address_),
      addresses_({address_}) {}

Member::Session::~Session() {
  thread_.request_stop();
  const std::scoped_lock lock(mutex_);
  if (client_) {
    client_->close();  // wakes the thread, which ends, and is joined as the first of the members to go
  }
}

// The thread.

void Member::Session::run(const std::stop_token& stop) {
  Clock::time_point last_round = Clock::now();
  while (!stop.stop_requested()) {
    if (Clock::now() - std::exchange(last_round, Clock::now()) > kGapLimit) {
      heard_at_ = Clock::now();
    }
    if (is_cut_off() && !sit_out_the_cut(stop)) {
      return;
    }
    if (!client_ && !reconnect(stop)) {
      return;
    }
    if (Clock::now() >= next_heartbeat_) {
      const std::scoped_lock lock(mutex_);
      send_heartbeat_locked();
      next_heartbeat_ = Clock::now() + heartbeat_;
    }
    const auto got = client_->receive(next_heartbeat_);
    if (is_cut_off()) {
      last_round = Clock::now();  // what came, if anything did, is sent again: it was not counted
    } else if (got.kind == MessageClient::Received::Kind::message) {
      heard_at_ = Clock::now();
      auto decoded = decode_control(got.message);
      if (!decoded.ok()) {
        drop_connection();
      } else if (!handle(decoded.message())) {
        return;
      }
    } else if (got.kind == MessageClient::Received::Kind::closed ||
               Clock::now() - heard_at_.load() > request_.silence_limit) {
      drop_connection();
    }
  }
}

void Member::Session::drop_connection() {
  std::unique_ptr<MessageClient> broken;
  const std::scoped_lock lock(mutex_);
  broken = std::move(client_);
}

bool Member::Session::is_cut_off() const {
  const std::scoped_lock lock(mutex_);
  return cut_until_.has_value();
}

bool Member::Session::sit_out_the_cut(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  const Clock::time_point lost_at = heard_at_.load() + request_.coordinator_limit;
  changed_.wait_until(lock, stop, std::min(*cut_until_, lost_at), [] { return false; });
  if (stop.stop_requested()) {
    return false;
  }
  if (Clock::now() >= lost_at) {
    lock.unlock();
    end(CoordinatorLost{
        false, fmt::format("nothing was heard of the coordinator for {} ms", request_.coordinator_limit.count())});
    return false;
  }
  cut_until_.reset();
  lock.unlock();
  // The old connection stays until a new one takes its place: the coordinator does not see a close. What was said and
  // what was missed meanwhile is sent again on the new one.
  return reconnect(stop);
}

void Member::Session::send_heartbeat_locked() {
  const Progress now = request_.progress ? request_.progress() : Progress();
  if (now.operation != operation_) {
    operation_ = now.operation;
    operation_since_ = Clock::now();
  }
  control::Heartbeat heartbeat;
  control::Progress& progress = *heartbeat.mutable_progress();
  progress.set_step(now.step);
  progress.set_epoch(now.epoch);
  progress.set_samples_per_second(now.samples_per_second);
  progress.set_loss(now.loss);
  progress.set_operation(now.operation);
  progress.set_operation_seconds(seconds_since(operation_since_));
  progress.set_waits_for_others(now.waits_for_others);
  progress.set_timed_steps(now.times.steps);
  progress.set_computed_seconds(now.times.computed);
  progress.set_loaded_seconds(now.times.loaded);
  progress.set_linked_seconds(now.times.linked);
  progress.set_share(now.share);
  heartbeat.set_received(received_);
  static_cast<void>(client_->send(encode_control(heartbeat)));  // a broken connection is found out by receive()
}

bool Member::Session::handle(const ControlMessage& message) {
  if (is_numbered(message)) {
    const std::scoped_lock lock(mutex_);
    ++received_;
  }
  return std::visit([&](const auto& content) { return on(content); }, message);
}

bool Member::Session::on(const control::Heard& heard) {
  const std::scoped_lock lock(mutex_);
  if (!outbox_.acknowledge(heard.received())) {
    if (client_) {
      client_->close();  // the coordinator counts wrongly; a new connection settles it or ends it
    }
    return true;
  }
  if (outbox_.waiting().empty()) {
    said_done_.clear();
  }
  changed_.notify_all();
  return !(leaving_ && outbox_.waiting().empty());
}

bool Member::Session::on(const control::Fenced& fenced) {
  if (fenced.incarnation() == self_.incarnation) {
    deliver(Notice{fenced.reason(), 0});  // about one thing it said, not about itself
    return true;
  }
  end(CoordinatorLost{true, fenced.reason(), fenced.come_again()});
  return false;
}

bool Member::Session::on(const control::View& wire) {
  View view = from_wire(wire);
  {
    const std::scoped_lock lock(mutex_);
    if (view.term < term_ || view.number <= view_.number) {
      return true;
    }
    view_ = view;
    changed_.notify_all();
  }
  deliver(std::move(view));
  return true;
}

bool Member::Session::on(const control::Lost& lost) {
  deliver(MemberLost{from_wire(lost.member()), lost.reason(), lost.remedy()});
  return true;
}

bool Member::Session::on(const control::Order& order) {
  if (order.term() < term()) {
    return true;
  }
  deliver(Order{.what = what_from_wire(order.what()),
                .reason = order.reason(),
                .no_workers = order.no_workers(),
                .rank = Rank{order.rank()},
                .workers = order.workers(),
                .servers = order.servers()});
  return true;
}

bool Member::Session::on(const control::OrderAnswer& answer) {
  deliver(OrderAnswer{answer.accepted(), answer.text()});
  return true;
}

bool Member::Session::on(const control::Configuration& configuration) {
  const std::scoped_lock lock(mutex_);
  configuration_ = configuration.text();
  changed_.notify_all();
  return true;
}

bool Member::Session::on(const control::LeaseGrant& grant) {
  const std::scoped_lock lock(mutex_);
  lease_asked_.reset();
  grants_.push_back(grant.finished() ? LeaseAnswer(LeasesFinished{}) : LeaseAnswer(from_wire(grant)));
  if (!grant.finished()) {
    held_[grant.lease()] = from_wire(grant);
  }
  changed_.notify_all();
  return true;
}

bool Member::Session::on(const control::StatusReply& reply) {
  const std::scoped_lock lock(mutex_);
  status_asked_ = false;
  status_ = from_wire(reply);
  changed_.notify_all();
  return true;
}

bool Member::Session::on(const control::LeaseQuestion& question) {
  if (question.term() >= term()) {
    deliver(from_wire(question));
  }
  return true;
}

bool Member::Session::on(const control::ServerHistory& history) {
  if (history.term() >= term()) {
    deliver(from_wire(history));
  }
  return true;
}

bool Member::Session::on(const control::Notice& notice) {
  if (std::uint64_t& heard = notices_heard_[notice.member()]; notice.number() != 0) {
    if (notice.number() <= heard) {
      return true;  // said again to a coordinator that came back
    }
    heard = notice.number();
  }
  deliver(Notice{notice.text(), notice.member()});
  return true;
}

bool Member::Session::on(const control::Ended& ended) {
  end(JobEnded{ended.succeeded(), ended.reason(), ended.bad_input()});
  return false;
}

template <typename Other>
bool Member::Session::on(const Other& /*other*/) {
  const std::scoped_lock lock(mutex_);
  client_->close();  // nothing a coordinator says
  return true;
}

void Member::Session::deliver(const MemberEvent& event) {
  {
    const std::scoped_lock lock(mutex_);
    if (leaving_) {
      return;
    }
  }
  if (request_.on_event) {
    request_.on_event(event);
  }
}

void Member::Session::end(const MemberEvent& event) {
  deliver(event);
  const std::scoped_lock lock(mutex_);
  over_ = true;
  changed_.notify_all();
}

// What other threads ask for.

std::uint64_t Member::Session::term() const {
  const std::scoped_lock lock(mutex_);
  return term_;
}

std::string Member::Session::shares() const {
  const std::scoped_lock lock(mutex_);
  return shares_;
}

View Member::Session::view() const {
  const std::scoped_lock lock(mutex_);
  return view_;
}

std::optional<View> Member::Session::wait_for_view(std::uint64_t number, Clock::time_point deadline) const {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline, [&] { return over_ || view_.number >= number; });
  return view_.number >= number ? std::optional(view_) : std::nullopt;
}

Member::LeaseAnswer Member::Session::request_lease(std::int64_t samples, Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  if (grants_.empty() && !lease_asked_) {
    lease_asked_ = samples;
    control::LeaseRequest request;
    request.set_samples(samples);
    say_locked(request);
  }
  changed_.wait_until(lock, deadline, [&] { return over_ || !grants_.empty(); });
  if (grants_.empty()) {
    return NoLease{};
  }
  const LeaseAnswer answer = grants_.front();
  grants_.pop_front();
  return answer;
}

std::optional<JobStatus> Member::Session::request_status(Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  status_.reset();
  if (!status_asked_) {
    status_asked_ = true;
    say_locked(control::StatusRequest());
  }
  changed_.wait_until(lock, deadline, [&] { return over_ || status_.has_value(); });
  return std::exchange(status_, std::nullopt);
}

std::optional<std::string> Member::Session::request_configuration(Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  say_locked(control::ConfigurationRequest());
  changed_.wait_until(lock, deadline, [&] { return over_ || configuration_.has_value(); });
  return configuration_;
}

bool Member::Session::flush(Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  if (client_ && !cut_until_) {
    send_heartbeat_locked();  // its answer says what has come
  }
  changed_.wait_until(lock, deadline, [&] { return over_ || outbox_.waiting().empty(); });
  return outbox_.waiting().empty();
}

void Member::Session::cut_off(Clock::time_point until) {
  const std::scoped_lock lock(mutex_);
  cut_until_ = until;
  changed_.notify_all();
}

bool Member::Session::leave(bool succeeded, const std::string& result, Clock::time_point deadline, bool bad_input) {
  std::unique_lock lock(mutex_);
  if (over_) {
    return false;
  }
  if (!std::exchange(leaving_, true)) {
    control::Leave leave;
    leave.set_succeeded(succeeded);
    leave.set_result(result);
    leave.set_bad_input(bad_input);
    say_locked(leave);
  }
  changed_.wait_until(lock, deadline, [&] { return over_ || outbox_.waiting().empty(); });
  return outbox_.waiting().empty();
}

void Member::Session::say(ControlMessage message) {
  const std::scoped_lock lock(mutex_);
  say_locked(std::move(message));
}

void Member::Session::say_notice(const std::string& text) {
  const std::scoped_lock lock(mutex_);
  control::Notice notice;
  notice.set_text(text);
  notice.set_number(++notices_);
  if (say_locked(notice)) {
    last_notices_.push_back(outbox_.waiting().back());
    if (last_notices_.size() > kNoticesKept) {
      last_notices_.pop_front();
    }
  }
}

bool Member::Session::say_locked(ControlMessage message) {
  if (over_) {
    return false;
  }
  if (const auto* done = std::get_if<control::LeaseDone>(&message)) {
    said_done_.insert(held_.extract(done->lease()));
  }
  outbox_.push(std::make_shared<const ControlMessage>(std::move(message)));
  if (client_ && !cut_until_) {
    static_cast<void>(
        client_->send(encode_control(*outbox_.waiting().back())));  // else the next connection begins here
  }
  return true;
}

}  // namespace distbelief
