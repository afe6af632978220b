#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "cluster/job_file.h"
#include "cluster/lease_table.h"
#include "cluster/membership.h"
#include "cluster/status.h"
#include "transport/address.h"
#include "transport/tls_options.h"

namespace distbelief {

/// Another member is dead. A view without it follows.
struct MemberLost {
  MemberInfo member = {};
  std::string reason = {};
  std::string remedy = {};  ///< "its samples go to others"; may be empty
};
/// What somebody wants all members to do.
struct Order {
  enum class What : std::uint8_t { stop, checkpoint, leave, scale, start, take_over };
  What what = What::stop;
  std::string reason = {};
  bool no_workers = false;  ///< stop, because none is left: nobody asked for it
  Rank rank = {};           ///< leave: who is to; whoever hears it is meant; take_over: as which, or -1
  int workers = 0;          ///< scale: so many there shall be; start: so many more
  int servers = 0;          ///< scale: likewise; 0: as many as there are
};
/// What became of an order to leave or to scale, for who gave it.
struct OrderAnswer {
  bool accepted = false;
  std::string text = {};
};
/// A line for people; launchers and observers get those of all members.
struct Notice {
  std::string text = {};
  std::uint64_t member = 0;  ///< who said it; 0 for the coordinator
};
/// The job is over.
struct JobEnded {
  bool succeeded = false;
  std::string reason = {};
  bool bad_input = false;  ///< the reason is of a process that failed for what the user gave it
};
/// There is no way back to the coordinator: it is gone and none came back in time, or (`fenced`) it gave this process
/// up. The process should end.
struct CoordinatorLost {
  bool fenced = false;
  std::string reason = {};
  bool comes_again = false;  ///< fenced, but it may join once more, as a standby: see JobRules::copies_come_whole()
};
using MemberEvent =
    std::variant<View, MemberLost, Order, Notice, JobEnded, CoordinatorLost, LeaseQuestion, OrderAnswer, ServerHistory>;

/// What a process says of itself when it joins, and how patient it is with its coordinator.
struct JoinRequest {
  std::string version = {};
  std::string token = {};
  std::string configuration = {};  ///< a digest; launchers and observers need none
  std::string host = {};           ///< for people and for finding out who shares a machine
  int pid = 0;
  Role role = Role::any;
  Rank rank = {};
  std::string facts = {};    ///< for the other members: a line that the control plane does not read
  std::uint64_t launch = 0;  ///< the launcher's number for this process, 0 without one
  bool grows = false;  ///< of a standby: it also waits for others with whom it can hold one more copy of a network
  std::optional<TlsOptions> tls = {};

  /// Called on the member's thread, one at a time and in order; perhaps before join() has returned. Must not block, and
  /// must not destroy the member.
  std::function<void(const MemberEvent&)> on_event = {};
  /// Asked on the member's thread at each heartbeat, and so twice a second; must not block or call the member.
  /// None: nothing to tell.
  std::function<Progress()> progress = {};

  /// Where a job's coordinator can be on another machine than before: asks, by the deadline, how the newest is reached;
  /// nothing when that is not known. Called on the member's thread, and by join(). The coordinator is then waited for
  /// as long as return_limit, also when nothing is heard of its machine.
  std::function<std::optional<JobFile>(Clock::time_point deadline)> find_coordinator = {};

  /// Asked by join() between two attempts: true ends it.
  std::function<bool()> gives_up = {};

  std::chrono::milliseconds silence_limit{2'500};  ///< then the connection is taken for broken, and a new one made
  /// Nothing is heard of the machine that the coordinator is on, for so long: it is lost.
  std::chrono::milliseconds coordinator_limit{8'000};
  /// The machine answers, but there is no coordinator, for so long; none: as the coordinator said.
  std::optional<std::chrono::milliseconds> return_limit = {};
};

/// A process that the launcher saw end.
struct ProcessExit {
  std::uint64_t launch = 0;
  std::string name = {};  ///< "worker 1"
  std::string host = {};
  int pid = 0;
  int exit_code = 0;
  int signal = 0;  ///< 0: it exited
  bool starts_again = false;
};

/// A process's place in a job: its connection to the coordinator, over which it tells that it lives and learns who else
/// does. One thread of its own receives, sends heartbeats and, when the connection breaks, makes a new one and goes on
/// as if nothing had happened, also with a coordinator that took the place of one that died; all functions are
/// thread-safe. Destroyed without leave(), it looks to others like a crash.
class Member {
 public:
  struct [[nodiscard]] Joined {
    std::unique_ptr<Member> member;
    std::string reason = {};  ///< why there is none
    bool refused = false;     ///< it was reached, and said that reason
  };
  /// Tries until the deadline to reach a coordinator there; a refusal is final. That it fails is a value.
  static Joined join(const Address& coordinator, JoinRequest request, Clock::time_point deadline);
  ~Member();
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  /// With the role and the rank that the coordinator gave.
  const MemberInfo& self() const;
  std::uint64_t term() const;
  /// When the coordinator was last heard, or this process was away itself.
  Clock::time_point heard_at() const;
  /// Of a network that is cut, as those found out who began the job; empty: not measured, or not yet.
  std::string shares() const;

  /// The newest; number 0 before the job has begun.
  View view() const;
  /// The first view with this number or a higher one that is known; nothing at the deadline or when it cannot come.
  [[nodiscard]] std::optional<View> wait_for_view(std::uint64_t number, Clock::time_point deadline) const;

  void notice(const std::string& text);
  /// For launchers and observers; and for workers, each of which may order itself to leave.
  void order(const Order& order);
  /// For launchers.
  void report_exit(const ProcessExit& exit);
  [[nodiscard]] std::optional<JobStatus> request_status(Clock::time_point deadline);
  /// What another process must know to join, besides address and token: JobRules::invitation.
  [[nodiscard]] std::optional<std::string> request_configuration(Clock::time_point deadline);

  /// For the server that leads: what there is to lease. Once, and again for each LeaseQuestion `for_plan`, whose number
  /// it `answers`.
  void plan_leases(const LeaseTable::Options& plan, std::uint64_t answers = 0);
  /// For servers: the answer to any other LeaseQuestion.
  void report_leases(const std::vector<LeaseReport>& reports, std::uint64_t answers);
  struct LeasesFinished {};
  struct NoLease {};  ///< not by the deadline, or the coordinator is lost
  using LeaseAnswer = std::variant<Lease, LeasesFinished, NoLease>;
  /// For workers. At most so many samples; after NoLease what comes late is the answer to the next request.
  [[nodiscard]] LeaseAnswer request_lease(std::int64_t samples, Clock::time_point deadline);
  void complete_lease(std::uint64_t lease);
  /// For others to finish: pushes below `next_push` are done, and nothing of it is on its way.
  void give_back_lease(std::uint64_t lease, std::uint64_t next_push);

  struct LeaseProgress {
    std::uint64_t lease = 0;
    std::uint64_t next_push = 0;
  };
  /// For servers: nothing more is taken from this incarnation (of a MemberLost), and its leases have come so far;
  /// nothing of one that holds nothing.
  void confirm_fence(std::uint64_t incarnation, const std::optional<std::vector<LeaseProgress>>& leases);
  /// A server's: see ServerNews. To be said again until the history has it.
  void tell_of_servers(const ServerNews& news);
  /// A server's: what shares() is for those who join from now on.
  void tell_shares(const std::string& shares);

  /// For who trains: it is time for the coordinator to die of this event of --chaos. It does so once.
  void chaos_due(const std::string& event);

  /// True when the coordinator has everything that was said before; false at the deadline.
  bool flush(Clock::time_point deadline);

  /// As if the network was gone until then: nothing goes out, nothing comes in, nothing is closed. When it is back all
  /// goes on, unless the coordinator has given this process up, or is itself taken for lost.
  void cut_off(Clock::time_point until);

  /// The last word: no events follow. True when the coordinator has it and everything said before. `bad_input`: that is
  /// why it has not succeeded.
  bool leave(bool succeeded, const std::string& result, Clock::time_point deadline, bool bad_input = false);

 private:
  class Session;
  explicit Member(std::unique_ptr<Session> session);
  std::unique_ptr<Session> session_;
};

}  // namespace distbelief
