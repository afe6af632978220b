// How a member gets a connection to its coordinator, for the first time and again.
#include <fmt/format.h>

#include <algorithm>

#include "base/process_identity.h"
#include "cluster/member_session.h"

namespace distbelief {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kAttemptLimit{1000};
constexpr milliseconds kBetweenAttempts{20};
constexpr milliseconds kBetweenSearches{500};

}  // namespace

Member::Session::Opened Member::Session::open(Clock::time_point deadline) {
  std::string reason;
  for (;;) {
    const Clock::time_point limit = std::min(deadline, Clock::now() + kAttemptLimit);
    const Attempt tried = attempt(limit);
    if (tried.kind == Attempt::Kind::joined) {
      thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
      return {};
    }
    if (tried.kind != Attempt::Kind::failed) {
      return {.problem = tried.reason, .refused = tried.kind == Attempt::Kind::refused};
    }
    if (reason.empty() || Clock::now() < limit) {  // that time ran out tells less than what was seen before
      reason = tried.reason;
    }
    if (Clock::now() + kBetweenAttempts >= deadline || (request_.gives_up && request_.gives_up())) {
      return {.problem = fmt::format("no coordinator was reached: {}", reason)};
    }
    follow_coordinator();
    std::this_thread::sleep_for(kBetweenAttempts);
  }
}

void Member::Session::follow_coordinator() {
  if (request_.find_coordinator && Clock::now() >= next_search_) {
    next_search_ = Clock::now() + kBetweenSearches;
    const std::optional<JobFile> found = request_.find_coordinator(Clock::now() + kAttemptLimit);
    if (found && found->term >= term()) {
      addresses_ = found->addresses();
    }
  }
  // The one that worked before is tried in between, as long as it is the coordinator's.
  if (address_ != worked_ && std::ranges::find(addresses_, worked_) != addresses_.end()) {
    address_ = worked_;
  } else {
    address_ = addresses_[next_address_++ % addresses_.size()];
  }
}

Member::Session::Attempt Member::Session::attempt(Clock::time_point deadline) {
  MessageClient::Options options;
  options.tls = request_.tls;
  options.longest_message = kMaxControlBytes;
  auto [client, reason, nobody_listens] = MessageClient::connect(address_, deadline, options);
  if (!client) {
    return {Attempt::Kind::failed, reason, nobody_listens};
  }
  const auto failed = [&](std::string_view what, bool answered = true) {
    return Attempt{Attempt::Kind::failed, fmt::format("{}: {}", address_.text(), what), answered};
  };
  if (!client->send(encode_control(make_join()))) {
    return failed("closed the connection");
  }
  const auto answer = client->receive(deadline);
  if (answer.kind == MessageClient::Received::Kind::timed_out) {
    return failed("did not answer in time", false);
  }
  if (answer.kind != MessageClient::Received::Kind::message) {
    return failed(answer.reason);
  }
  auto decoded = decode_control(answer.message);
  if (!decoded.ok()) {
    return failed("sent " + decoded.reason());
  }
  if (const auto* accepted = std::get_if<control::Welcome>(&decoded.message())) {
    return welcome(*accepted, std::move(client));
  }
  if (const auto* refused = std::get_if<control::Refused>(&decoded.message())) {
    return {Attempt::Kind::refused, refused->reason()};
  }
  if (const auto* fenced = std::get_if<control::Fenced>(&decoded.message())) {
    return {.kind = Attempt::Kind::fenced, .reason = fenced->reason(), .comes_again = fenced->come_again()};
  }
  if (const auto* heard = std::get_if<control::Heard>(&decoded.message())) {
    on(*heard);  // it has this member's Leave, whose answer got lost
    return {Attempt::Kind::left, "left"};
  }
  return failed(fmt::format("sent a {} before a Welcome", kind_name(answer.message.kind)));
}

control::Join Member::Session::make_join() const {
  control::Join join;
  join.set_version(request_.version);
  join.set_token(request_.token);
  join.set_configuration(request_.configuration);
  join.set_host(request_.host);
  join.set_pid(request_.pid);
  join.set_process(identify_this_process().text());
  join.set_role(to_wire(request_.role));
  join.set_rank(request_.rank.value);
  join.set_facts(request_.facts);
  join.set_launch(request_.launch);
  join.set_grows(request_.grows);
  join.set_nonce(nonce_);
  join.set_member(self_.id);
  join.set_incarnation(self_.incarnation);
  const std::scoped_lock lock(mutex_);
  join.set_received(received_);
  join.set_term(term_);
  for (const auto& [id, lease] : held_) {
    *join.add_holds() = to_wire(lease);
  }
  for (const SharedControlMessage& message : outbox_.waiting()) {  // a new coordinator will hear that they are done
    const auto* done = std::get_if<control::LeaseDone>(message.get());
    if (const auto lease = done == nullptr ? said_done_.end() : said_done_.find(done->lease());
        lease != said_done_.end()) {
      *join.add_holds() = to_wire(lease->second);
    }
  }
  return join;
}

/// Counts begin again. What it had not acknowledged is said to its successor, but for what only it could use; requests
/// that it had not answered are made again.
void Member::Session::begin_term_locked() {
  received_ = 0;
  std::deque<SharedControlMessage> waiting;
  for (const SharedControlMessage& notice : last_notices_) {
    if (std::ranges::find(outbox_.waiting(), notice) == outbox_.waiting().end()) {
      waiting.push_back(notice);
    }
  }
  if (lease_asked_ && !leaving_) {
    control::LeaseRequest request;
    request.set_samples(*lease_asked_);
    waiting.push_back(std::make_shared<const ControlMessage>(request));
  }
  if (status_asked_ && !leaving_) {
    waiting.push_back(std::make_shared<const ControlMessage>(control::StatusRequest()));
  }
  for (const SharedControlMessage& message : outbox_.waiting()) {
    const auto* plan = std::get_if<control::LeasePlan>(message.get());
    const bool is_past = std::holds_alternative<control::LeaseRequest>(*message) ||
                         std::holds_alternative<control::StatusRequest>(*message) ||
                         std::holds_alternative<control::LeaseReports>(*message) ||
                         (plan != nullptr && plan->answers() != 0);
    if (!is_past) {
      waiting.push_back(message);
    }
  }
  outbox_.restart(std::move(waiting));
}

Member::Session::Attempt Member::Session::welcome(const control::Welcome& welcome,
                                                  std::unique_ptr<MessageClient> client) {
  const std::scoped_lock lock(mutex_);
  if (welcome.term() < term_) {
    return {Attempt::Kind::failed, fmt::format("{}: a coordinator of the past answered: its term is {}, this job's {}",
                                               address_.text(), welcome.term(), term_)};
  }
  if (self_.id != 0 && welcome.term() > term_) {
    begin_term_locked();
  }
  if (!outbox_.acknowledge(welcome.received())) {
    return {Attempt::Kind::fenced,
            fmt::format("the coordinator has lost count: it received {} messages of this process", welcome.received())};
  }
  term_ = welcome.term();
  shares_ = welcome.shares();
  if (self_.id == 0) {
    self_ = {.id = welcome.member(),
             .incarnation = welcome.incarnation(),
             .role = from_wire(welcome.role()),
             .rank = Rank{welcome.rank()},
             .host = request_.host,
             .pid = request_.pid,
             .facts = request_.facts};
    operation_since_ = Clock::now();
  }
  heartbeat_ = milliseconds(welcome.heartbeat_milliseconds());
  return_limit_ =
      std::max(request_.coordinator_limit, request_.return_limit.value_or(milliseconds(welcome.return_milliseconds())));
  heard_at_ = next_heartbeat_ = Clock::now();
  client_ = std::move(client);
  worked_ = address_;
  for (const SharedControlMessage& message : outbox_.waiting()) {
    static_cast<void>(client_->send(encode_control(*message)));  // if it breaks, the next connection begins here again
  }
  changed_.notify_all();
  return {};
}

bool Member::Session::reconnect(const std::stop_token& stop) {
  Clock::time_point deadline = heard_at_.load() + request_.coordinator_limit;
  Clock::time_point answered_at = {};
  Attempt tried;
  do {
    tried = attempt(std::min(deadline, Clock::now() + kAttemptLimit));
    if (tried.answered) {
      answered_at = Clock::now();
    }
    // Where the machine says that nobody listens, the coordinator died, and somebody may start it again; and where it
    // may be on another machine, this one tells nothing.
    const bool machine_is_there = request_.find_coordinator || Clock::now() - answered_at < request_.coordinator_limit;
    deadline = heard_at_.load() + (machine_is_there ? return_limit_ : request_.coordinator_limit);
    switch (tried.kind) {
      case Attempt::Kind::joined:
        return true;
      case Attempt::Kind::refused:
      case Attempt::Kind::fenced:
        end(CoordinatorLost{true, tried.reason, tried.comes_again});
        return false;
      case Attempt::Kind::left:
        return false;
      case Attempt::Kind::failed:
        follow_coordinator();
        break;
    }
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, stop, kBetweenAttempts, [] { return false; });
  } while (!stop.stop_requested() && Clock::now() < deadline);
  if (!stop.stop_requested()) {
    end(CoordinatorLost{
        false, fmt::format("the coordinator is gone for {} s: {}",
                           std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - heard_at_.load()).count(),
                           tried.reason)});
  }
  return false;
}

}  // namespace distbelief
