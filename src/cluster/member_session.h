#pragma once

// Inside cluster/ only: includes protobuf's code, which others should not have to read.

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "cluster/member.h"
#include "cluster/outbox.h"
#include "transport/socket/message_client.h"

namespace distbelief {

/// What a Member is made of; see there. The thread alone makes and drops connections and reads from them; whoever has
/// something to say puts it into the outbox and, when there is a connection, on the wire, in one piece under the lock.
class Member::Session {
 public:
  Session(Address coordinator, JoinRequest request);
  ~Session();

  struct [[nodiscard]] Opened {
    std::string problem = {};  ///< why it did not work, or empty
    bool refused = false;      ///< see Joined
  };
  /// Joins for the first time and starts the thread.
  Opened open(Clock::time_point deadline);

  const MemberInfo& self() const { return self_; }
  std::uint64_t term() const;
  Clock::time_point heard_at() const { return heard_at_; }
  std::string shares() const;
  View view() const;
  std::optional<View> wait_for_view(std::uint64_t number, Clock::time_point deadline) const;
  LeaseAnswer request_lease(std::int64_t samples, Clock::time_point deadline);
  std::optional<JobStatus> request_status(Clock::time_point deadline);
  std::optional<std::string> request_configuration(Clock::time_point deadline);
  bool flush(Clock::time_point deadline);
  void cut_off(Clock::time_point until);
  bool leave(bool succeeded, const std::string& result, Clock::time_point deadline, bool bad_input);
  /// A numbered message: it arrives once at each coordinator that is there long enough, unless it had answered it.
  void say(ControlMessage message);
  void say_notice(const std::string& text);

 private:
  /// How one try to get a connection and a place on it ended.
  struct Attempt {
    enum class Kind : std::uint8_t { joined, failed, refused, fenced, left };
    Kind kind = Kind::joined;
    std::string reason = {};
    bool answered = false;     ///< of one that failed: the machine is there
    bool comes_again = false;  ///< of one that was fenced: see CoordinatorLost
  };
  Attempt attempt(Clock::time_point deadline);
  /// After an attempt that failed: chooses the address for the next one.
  void follow_coordinator();
  Attempt welcome(const control::Welcome& welcome, std::unique_ptr<MessageClient> client);
  control::Join make_join() const;
  /// What the coordinator of before had to be told is told to this one; see there.
  void begin_term_locked();

  void run(const std::stop_token& stop);
  /// False when there is no way back; the reason is told.
  bool reconnect(const std::stop_token& stop);
  void drop_connection();
  /// Until the network is back. False when the coordinator is taken for lost, or the thread is to end.
  bool sit_out_the_cut(const std::stop_token& stop);
  bool is_cut_off() const;
  void send_heartbeat_locked();
  /// False when nothing more is to come.
  bool handle(const ControlMessage& message);
  bool on(const control::Heard& heard);
  bool on(const control::Fenced& fenced);
  bool on(const control::View& view);
  bool on(const control::Lost& lost);
  bool on(const control::Order& order);
  bool on(const control::LeaseGrant& grant);
  bool on(const control::StatusReply& reply);
  bool on(const control::ServerHistory& history);
  bool on(const control::Notice& notice);
  bool on(const control::Ended& ended);
  bool on(const control::LeaseQuestion& question);
  bool on(const control::OrderAnswer& answer);
  bool on(const control::Configuration& configuration);
  template <typename Other>
  bool on(const Other& other);

  /// False when nothing can be said any more.
  bool say_locked(ControlMessage message);
  void deliver(const MemberEvent& event);
  void end(const MemberEvent& event);

  const JoinRequest request_;
  const std::uint64_t nonce_;
  MemberInfo self_;  // constant once open() has returned

  // The thread's own, once there is one.
  Address address_;                 // of the next attempt, or of the connection
  Address worked_;                  // of the last connection
  std::vector<Address> addresses_;  // of the coordinator
  std::size_t next_address_ = 0;
  Clock::time_point next_search_ = {};
  std::atomic<Clock::time_point> heard_at_ = {};  // for others to read
  Clock::time_point next_heartbeat_ = {};
  std::chrono::milliseconds heartbeat_{500};
  std::chrono::milliseconds return_limit_{0};
  std::map<std::uint64_t, std::uint64_t> notices_heard_;  // the last number, by member

  mutable std::mutex mutex_;
  mutable std::condition_variable_any changed_;  // views, leases, status, acknowledgements, the end
  // All below is guarded by mutex_.
  std::unique_ptr<MessageClient> client_;  // changed by the thread only, which therefore reads it without the lock
  Outbox outbox_;
  std::uint64_t received_ = 0;  // numbered messages
  std::uint64_t term_ = 0;
  std::string shares_;
  std::string operation_;  // as it was last told
  Clock::time_point operation_since_ = {};
  std::optional<Clock::time_point> cut_until_;
  View view_;
  std::optional<std::int64_t> lease_asked_;   // so many samples, and there is no answer
  std::map<std::uint64_t, Lease> held_;       // that were given, and not said to be done
  std::map<std::uint64_t, Lease> said_done_;  // since the outbox was last empty
  std::deque<SharedControlMessage> last_notices_;
  std::uint64_t notices_ = 0;
  std::deque<LeaseAnswer> grants_;
  bool status_asked_ = false;
  std::optional<JobStatus> status_;
  std::optional<std::string> configuration_;
  bool leaving_ = false;
  bool over_ = false;

  std::jthread thread_;
};

}  // namespace distbelief
