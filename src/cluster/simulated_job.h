#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cluster/coordinator_state.h"

namespace distbelief {

inline control::LeaseRequest lease_request(std::int64_t samples = 10) {
  control::LeaseRequest message;
  message.set_samples(samples);
  return message;
}

inline control::LeaseDone lease_done(std::uint64_t lease) {
  control::LeaseDone message;
  message.set_lease(lease);
  return message;
}

/// For tests: a coordinator whose clock and connections are the test's. Messages that the coordinator sends pile up by
/// connection until they are taken.
class SimulatedJob {
 public:
  using Ms = std::chrono::milliseconds;

  explicit SimulatedJob(JobRules rules)
      : rules_(made_at(with_defaults(std::move(rules)), now_)), state_(rules_, kTerm, now_) {
    carry_out();
  }
  /// A coordinator that takes the place of this one, which was killed, with the next term; connections are new ones.
  struct Killed {
    const SimulatedJob& job;
    Ms after{0};
  };
  explicit SimulatedJob(const Killed& killed)
      : now_(killed.job.now_ + killed.after),
        rules_(made_at(killed.job.rules_, now_)),
        state_(rules_, killed.job.state_.term() + 1, now_, &killed.job.saved_),
        last_connection_(killed.job.last_connection_) {
    carry_out();
  }

  static constexpr std::uint64_t kTerm = 5;  ///< of the first

  static control::Join make_join(control::Role role = control::WORKER, int rank = -1) {
    control::Join join;
    join.set_version("1.0");
    join.set_token("secret");
    join.set_configuration("abc");
    join.set_host("alpha");
    join.set_role(role);
    join.set_rank(rank);
    return join;
  }

  static ProcessIdentity process_of(std::int64_t pid) { return {.host = 1, .started = 1, .pid = pid}; }

  /// A process that connects and asks; its pid is 1000 + the connection's number, and its launch number that without
  /// 1000.
  ConnectionId join(control::Join join) {
    const ConnectionId connection{++last_connection_};
    if (join.pid() == 0) {
      join.set_pid(1000 + static_cast<int>(connection.value));
      join.set_launch(connection.value);
    }
    if (join.process().empty()) {
      join.set_process(process_of(join.pid()).text());
    }
    say(connection, join);
    return connection;
  }
  ConnectionId join(control::Role role = control::WORKER, int rank = -1) { return join(make_join(role, rank)); }

  void say(ConnectionId from, ControlMessage message) {
    state_.received(from, std::move(message), now_);
    carry_out();
  }
  void garbage(ConnectionId from) {
    state_.received_garbage(from, "3 bytes that are no Join", now_);
    carry_out();
  }
  void heartbeat(ConnectionId from, std::int64_t step = 0, const std::string& operation = "", bool waiting = false) {
    control::Heartbeat heartbeat;
    heartbeat.set_received(numbered_[from]);
    heartbeat.mutable_progress()->set_step(step);
    heartbeat.mutable_progress()->set_operation(operation);
    heartbeat.mutable_progress()->set_waits_for_others(waiting);
    const StepTimes& spent = times[from];
    heartbeat.mutable_progress()->set_timed_steps(spent.steps);
    heartbeat.mutable_progress()->set_computed_seconds(spent.computed);
    heartbeat.mutable_progress()->set_loaded_seconds(spent.loaded);
    heartbeat.mutable_progress()->set_linked_seconds(spent.linked);
    say(from, heartbeat);
  }
  void close(ConnectionId connection) {
    state_.closed(connection, now_);
    carry_out();
  }
  void exit(ConnectionId launcher, ConnectionId process, int signal, bool starts_again = false,
            const std::string& name = kStartedWorker) {
    control::ExitSeen exit;
    exit.set_launch(process.value);
    exit.set_host("alpha");
    exit.set_pid(1000 + static_cast<int>(process.value));
    exit.set_signal(signal);
    exit.set_name(name + " " + std::to_string(process.value));
    exit.set_starts_again(starts_again);
    say(launcher, exit);
  }
  void leave(ConnectionId connection, bool succeeded = true, const std::string& result = "done",
             bool bad_input = false) {
    control::Leave leave;
    leave.set_succeeded(succeeded);
    leave.set_result(result);
    leave.set_bad_input(bad_input);
    say(connection, leave);
  }

  /// Lets time pass in ticks of 100 ms, with heartbeats of those in `beating` in each.
  void pass(Ms time) {
    for (Ms passed{0}; passed < time; passed += Ms(100)) {
      now_ += Ms(100);
      for (const ConnectionId connection : beating) {
        if (!closed_.contains(connection)) {
          heartbeat(connection, steps[connection], operations[connection], waits[connection]);
        }
      }
      state_.tick(now_);
      carry_out();
    }
  }
  /// One jump, as when the coordinator itself was stopped.
  void jump(Ms time) {
    now_ += time;
    state_.tick(now_);
    carry_out();
  }

  /// All messages of this kind that came to the connection since the last look.
  template <typename T>
  std::vector<T> take(ConnectionId connection) {
    std::vector<T> found;
    std::vector<ControlMessage> rest;
    for (ControlMessage& message : inbox_[connection]) {
      if (auto* content = std::get_if<T>(&message)) {
        found.push_back(std::move(*content));
      } else {
        rest.push_back(std::move(message));
      }
    }
    inbox_[connection] = std::move(rest);
    return found;
  }
  /// The last of them; fails the test when there is none.
  template <typename T>
  T last(ConnectionId connection) {
    std::vector<T> all = take<T>(connection);
    EXPECT_FALSE(all.empty()) << "no such message for connection " << connection.value;
    return all.empty() ? T() : all.back();
  }

  /// The Join of a member that comes back.
  static control::Join back(const control::Welcome& welcome, std::uint64_t received = 0) {
    control::Join join = make_join(welcome.role(), welcome.rank());
    join.set_pid(1);
    join.set_member(welcome.member());
    join.set_incarnation(welcome.incarnation());
    join.set_term(welcome.term());
    join.set_received(received);
    return join;
  }
  const control::SavedJob& saved() const { return saved_; }
  int deaths() const { return deaths_; }

  bool is_closed(ConnectionId connection) const { return closed_.contains(connection); }
  std::string why_closed(ConnectionId connection) { return closed_[connection]; }
  std::uint64_t numbered(ConnectionId connection) { return numbered_[connection]; }
  /// The connection that replaced `old` has received what the old one had.
  void inherit(ConnectionId old, ConnectionId fresh) { numbered_[fresh] += numbered_[old]; }
  const std::vector<std::string>& log() const { return log_; }
  const std::optional<CoordinatorState::End>& end() const { return end_; }
  CoordinatorState& state() { return state_; }
  Clock::time_point now() const { return now_; }

  std::set<ConnectionId> beating;
  std::map<ConnectionId, std::int64_t> steps;
  std::map<ConnectionId, std::string> operations;
  std::map<ConnectionId, bool> waits;
  std::map<ConnectionId, StepTimes> times;

 private:
  static JobRules with_defaults(JobRules rules) {
    rules.version = "1.0";
    rules.configuration = "abc";
    rules.token = "secret";
    return rules;
  }

  static JobRules made_at(JobRules rules, Clock::time_point now) {
    rules.made_at = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch());
    return rules;
  }

  void carry_out() {
    for (CoordinatorState::Action& action : state_.take_actions()) {
      if (auto* persisted = std::get_if<CoordinatorState::Persist>(&action)) {
        saved_ = persisted->job;
      } else if (auto* send = std::get_if<CoordinatorState::Send>(&action)) {
        EXPECT_FALSE(closed_.contains(send->to)) << "sent to a closed connection";
        inbox_[send->to].push_back(*send->message);
        numbered_[send->to] += is_numbered(*send->message) ? 1 : 0;
      } else if (auto* close = std::get_if<CoordinatorState::Close>(&action)) {
        closed_[close->connection] = close->reason;
        state_.closed(close->connection, now_);
      } else if (auto* log = std::get_if<CoordinatorState::Log>(&action)) {
        log_.push_back(log->text);
      } else if (std::holds_alternative<CoordinatorState::Die>(action)) {
        ++deaths_;
      } else if (auto* end = std::get_if<CoordinatorState::End>(&action)) {
        EXPECT_FALSE(end_.has_value()) << "ended twice";
        end_ = *end;
      }
    }
  }

  Clock::time_point now_ = Clock::time_point(std::chrono::hours(1));
  const JobRules rules_;
  control::SavedJob saved_;
  int deaths_ = 0;
  CoordinatorState state_;
  std::uint64_t last_connection_ = 0;
  std::map<ConnectionId, std::vector<ControlMessage>> inbox_;
  std::map<ConnectionId, std::uint64_t> numbered_;
  std::map<ConnectionId, std::string> closed_;
  std::vector<std::string> log_;
  std::optional<CoordinatorState::End> end_;
};

}  // namespace distbelief
