#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "cluster/job_rules.h"
#include "cluster/lease_table.h"
#include "cluster/roster.h"
#include "cluster/straggler.h"

namespace distbelief {

/// How the leases of the coordinator before are found out. Whoever is lost meanwhile makes it begin again.
struct LeaseRecovery {
  std::uint64_t question = 0;  // the number; 0: nothing is asked
  std::set<std::uint64_t> unanswered = {};
  std::map<std::uint64_t, control::LeaseReports> answers = {};          // by server
  std::map<std::uint64_t, std::vector<Lease>> held = {};                // by worker, as it said when it came back
  std::vector<std::pair<std::uint64_t, control::LeaseDone>> done = {};  // by workers since
};

/// The coordinator of a job, as a machine of events and actions: no sockets, no threads, no clock of its own, so that
/// all it decides can be tested in no time. Events are functions; what is to be done about them is fetched with
/// take_actions(). One thread.
///
/// What its successor must know is an action too, Persist, before all others of the same event; so nothing is done that
/// is not written down. Leases are not in it: servers know them, and are asked.
///
/// A job is first *joining*, until every place is taken or the limit passes; then *running*, from the first view on;
/// then *stopping*, when somebody ordered it, somebody needed is gone, or no worker is left; then it has *ended*.
class CoordinatorState {
 public:
  struct Send {
    ConnectionId to;
    SharedControlMessage message;
  };
  /// The connection belongs to a member from now on.
  struct Trust {
    ConnectionId connection;
  };
  /// What was sent before still goes out.
  struct Close {
    ConnectionId connection;
    std::string reason;
  };
  /// A line for the coordinator's log.
  struct Log {
    std::string text;
  };
  struct End {
    bool succeeded = false;
    std::string reason;
    bool bad_input = false;  ///< the reason is of one that failed for what the user gave it
  };
  /// To be durable before the actions after it are carried out.
  struct Persist {
    control::SavedJob job;
  };
  /// To be killed, here and now.
  struct Die {};
  using Action = std::variant<Persist, Send, Trust, Close, Log, End, Die>;

  /// `term` is above that of every coordinator this job had before, and durable already. `before` is what the last one
  /// of the same job wrote down, if this one takes its place: members come back to it within JobRules::return_grace.
  CoordinatorState(JobRules rules, std::uint64_t term, Clock::time_point now,
                   const control::SavedJob* before = nullptr);

  /// `message` was read from a connection, joined or not.
  void received(ConnectionId connection, ControlMessage message, Clock::time_point now);
  /// The connection sent what is no message; it is closed.
  void received_garbage(ConnectionId connection, const std::string& reason, Clock::time_point now);
  void closed(ConnectionId connection, Clock::time_point now);
  /// To be called at least every 100 ms or so: time passes only here and with the other events.
  void tick(Clock::time_point now);
  /// As if an observer had ordered it.
  void stop(const std::string& reason, Clock::time_point now);

  /// Tells people.
  void announce(const std::string& text) { tell_people(text); }

  std::vector<Action> take_actions();
  bool ended() const { return phase_ == Phase::ended; }
  std::uint64_t term() const { return term_; }
  control::StatusReply status(Clock::time_point now) const;
  /// What Persist has.
  control::SavedJob saved() const;

 private:
  enum class Phase : std::uint8_t { joining, running, stopping, ended };

  // coordinator_join.cc
  void join(ConnectionId connection, const control::Join& join);
  std::string why_refused(const control::Join& join) const;
  /// The same for who is to take part in a job that runs. `takes_over`: it was called.
  std::string why_no_place(const control::Join& join, Role wanted, bool takes_over) const;
  void resume(ConnectionId connection, Record& record, const control::Join& join);
  void welcome(Record& record);
  void refuse(ConnectionId connection, const control::Join& join, const std::string& reason);

  // What members say, one function a kind; the last is for what is not theirs to say.
  void on(Record& record, const control::Heartbeat& heartbeat);
  void on(Record& record, const control::Leave& leave);
  void on(Record& record, const control::Notice& notice);
  void on(Record& record, const control::StatusRequest& request);
  void on(Record& record, const control::Order& order);
  void on(Record& record, const control::ConfigurationRequest& request);
  void on(Record& record, const control::ExitSeen& exit);
  void on(Record& record, const control::LeasePlan& plan);
  void on(Record& record, const control::LeaseRequest& request);
  void on(Record& record, const control::LeaseDone& done);
  void on(Record& record, const control::FenceConfirmed& confirmed);
  void on(Record& record, const control::ServerNews& news);
  void on(Record& record, const control::LeaseReports& reports);
  void on(Record& record, const control::ChaosDue& due);
  void on(Record& record, const control::Measured& measured);
  template <typename Other>
  void on(Record& record, const Other& other);
  void misbehaves(Record& record, const std::string& what);

  // coordinator_death.cc
  void look_for_the_dead();
  /// Of who joins; host 0 when it cannot be seen from here.
  ProcessIdentity process_of(const control::Join& join) const;
  ProcessSight look_for_process(const Record& record) const;
  /// The end of its process is seen by nobody but this machine.
  bool ends_unseen(const Record& record) const;
  void declare_dead_by_exit(Record& record);
  /// What comes of a death where there are servers, in a few words; empty: that is said elsewhere, or the run ends.
  std::string remedy_for(const Record& lost) const;
  /// `comes_again`: its process is to wait for another use.
  void declare_lost(Record& record, const std::string& cause, bool comes_again = false);
  void look_for_stalls();
  void look_for_stragglers();
  const Straggler* find_straggler(const Record& record) const;

  // coordinator_leases.cc
  struct WaitingRequest {
    std::uint64_t member;
    std::int64_t samples;
  };
  void serve_leases();
  /// Whether the next samples wait for another worker that lives.
  bool is_for_another(const WaitingRequest& request) const;
  void fence(const Record& record);
  /// The member whose name a worker's leases are in: of a copy of several workers the first.
  const Record& lease_holder(const Record& worker) const;
  /// Nothing is asked any more of a server that is gone.
  void confirm_no_fence(const Record& server);
  void settle_fence(std::uint64_t incarnation);

  // coordinator_servers.cc
  /// To be told to all before what follows from it.
  control::ServerHistory::Event& note_server(control::ServerHistory::Event::What what, const Record& server);
  void tell_server_history();
  /// It is a server, or one is inside.
  bool may_serve(const Record& record) const;
  /// It began with the job, or was ready since: others come to hold parameters, but do not yet.
  bool serves(const Record& record) const;
  /// Those of them that were not asked to leave, in the order of their ranks.
  std::vector<const Record*> staying_servers() const;
  /// A server was lost. If nobody stays, those who were to leave have to stay after all: see Ownership.
  void keep_the_last_servers();
  control::OrderAnswer order_server_to_leave(const Record& server);
  /// As many servers leave, or are started, as it takes. Why not, or what is done about it in `done`.
  std::string scale_servers(int wanted, std::string& done);
  /// So many servers are wanted from now on: whoever is not there is missing.
  void miss_servers_of(int wanted);

  // coordinator_return.cc
  void restore(const control::SavedJob& before);
  /// Some have not come back, and have time left.
  bool awaits_return() const;
  /// The count of messages begins again, with what one must know who missed the last of the coordinator before.
  void begin_anew(Record& record, const control::Join& join);
  void recover_leases();
  std::vector<Record*> lease_servers();
  void plan_recovered_leases();

  void begin_event(Clock::time_point now);

  // coordinator_job.cc
  void settle();
  void begin_stop(const std::string& reason, std::chrono::milliseconds limit);
  // coordinator_scale.cc
  /// A worker or server whose process was asked to end. When all of a kind were, the job is to stop; else it leaves.
  void look_for_wishes_to_leave();
  /// By signals to the processes of `who`.
  void stop_as_asked(const std::string& who);
  /// Has as many workers leave, or be started, as it takes; or says why not.
  control::OrderAnswer order_to_scale(const control::Order& order);
  std::string scale_workers(int wanted, std::string& done);
  std::string have_leave(int workers);
  /// Null: there is none.
  const Record* living_launcher() const;
  /// Why the launcher's machine cannot have as many; empty when it can, or when none need be started.
  std::string too_many(const control::Order& order) const;
  std::string have_started(int workers, int servers);
  /// Has the launcher start so many; false when there is none that could.
  bool tell_to_start(int workers, int servers, const std::string& reason);
  /// A worker or server that was to be started is there, or will not come.
  void expect_one_less(Role role) {
    int& starting = role == Role::server ? starting_servers_ : starting_ > 0 ? starting_ : starting_newcomers_;
    starting -= starting > 0 ? 1 : 0;
    unsaved_ = true;
  }

  // coordinator_replace.cc
  /// Somebody becomes a worker in the place of `lost`, which is one, or was to become one: a standby, or a process that
  /// the launcher starts; if there is either.
  void replace(const Record& lost);
  bool call_standby(const Record& lost);
  /// A standby joins again, as a worker.
  void call(Record& standby, const std::string& why);
  bool start_replacement(const Record& lost);
  /// Has the launcher start a process in the place of `lost`, if it may; says so.
  bool start_in_place_of(const std::string& lost, Role role);
  /// As many servers as were lost and not replaced, as long as there are restarts.
  void start_missing_servers();
  /// Where others wait for it: how many have still to come.
  int awaited() const;
  /// A process that joins is a standby that was called, and has come.
  bool was_called(const control::Join& join);
  /// A standby that was called will not come.
  void replacement_failed(Record& standby, const std::string& why);
  /// Those that do not come in time are not waited for.
  void look_for_replacements();

  // coordinator_copies.cc
  /// Whether members can tell apart as many views as it may still take, if somebody comes or goes by wish.
  bool bears_changes() const;
  /// It is a standby that may become part of one more copy of the network, or of one in place of one that was lost.
  bool waits_for_a_copy(const Record& record) const;
  std::vector<Record*> waiting_newcomers();
  /// "1 more is needed for another copy of the network"; empty when none is.
  std::string missing_for_a_copy(std::size_t waiting) const;
  /// `was_started`: by the launcher, which was told to.
  void newcomer_came(Record& newcomer, bool was_started);
  /// Calls those who wait when they are enough for a copy of the network.
  void look_for_copies();
  /// The copy of this worker leaves, or somebody who waits takes its place; or says why not.
  control::OrderAnswer order_part_to_leave(Record& worker);
  std::string scale_copies(int wanted, std::string& done);
  /// Before a view is issued: what was wished, and cannot be or was done, is wished no more.
  void review_wishes();

  // coordinator_served_copies.cc: where JobRules::copies_come_whole()
  /// The others of the copy are given up too, and may be part of another.
  void break_copy_of(const Record& lost);
  /// How long a process that may come again has for it.
  Clock::time_point time_to_come(const Record& record) const;
  std::vector<Record*> workers_of_copy(int copy);
  /// A standby that was called, or what is left of a copy, on its way.
  static bool is_expected(const Record& record);
  /// How many wait, or are on their way to wait, for a copy that is to be made.
  int who_will_wait() const;
  /// The same with those that were called for one.
  int who_may_make_copies() const;
  /// How many more the launcher will be told to start for copies that were lost.
  int who_may_be_started() const;
  /// Processes in the places of lost workers, if there will not be enough and the launcher may start some.
  void start_missing_workers();
  /// The process was a worker that was told to wait.
  bool came_again(const control::Join& join);
  /// One that is expected().
  void will_not_come(Record& record, const std::string& why);
  void look_for_who_does_not_come();
  /// Those who wait, if they are enough.
  void call_whole_copies();
  /// Where no worker is left, but a copy may come: how many are on their way.
  int awaited_for_a_copy() const;
  /// A worker has left because there was nothing more to do.
  bool is_done() const;
  /// No worker is left, and those who went did so because the job was over for them.
  bool workers_ended() const;

  /// Asks a worker, and its mates of one copy of the network, to leave; or says why not.
  control::OrderAnswer order_to_leave(const control::Order& order);
  void fail(const std::string& reason, bool bad_input = false);
  void end();
  /// The first of those that failed together when that ended the job: others did so before, and it went on. Or null.
  const Record* who_failed_at_last() const;
  void change_view(const std::string& reason, std::chrono::milliseconds delay);
  void issue_view();
  control::View make_view(const std::string& reason) const;
  control::Order stop_order() const;
  std::string phase_text() const;

  // Speaking
  void tell(Record& record, SharedControlMessage message);
  void tell(Record& record, ControlMessage message);
  /// To all who live, `except` left out.
  void tell_all(ControlMessage message, const Record* except = nullptr);
  /// `number`: see Notice.
  void tell_people(const std::string& text, std::uint64_t member = 0, std::uint64_t number = 0);
  void log(std::string text) { actions_.emplace_back(Log{std::move(text)}); }

  const JobRules rules_;
  const std::uint64_t term_;
  Clock::time_point started_at_;     // the job, perhaps under another coordinator
  std::chrono::milliseconds began_;  // the same, since 1970
  Clock::time_point now_;
  Clock::time_point join_deadline_;
  Phase phase_ = Phase::joining;
  std::uint64_t next_member_ = 1;
  std::uint64_t next_incarnation_;
  Roster roster_;
  std::map<int, StragglerWatch> stragglers_;  // of workers that have the same part of a network
  std::vector<Action> actions_;
  bool unsaved_ = true;
  std::optional<Clock::time_point> grace_until_;  // of one that came back

  control::ServerHistory server_history_;
  std::uint64_t view_number_ = 0;
  std::optional<Clock::time_point> view_due_;
  std::vector<std::string> view_reasons_;

  int starting_ = 0;                        // workers that the launcher was told to start, and that have not come
  int starting_servers_ = 0;                // likewise
  int starting_newcomers_ = 0;              // likewise workers for more copies of the network: nobody waits for them
  int most_workers_ = 0;                    // that shall go on, where a network is cut; 0: all
  Clock::time_point starting_since_ = {};   // when it was last told so
  std::set<std::uint64_t> ended_unjoined_;  // launch numbers of such processes
  int restarts_used_;                       // of the job, and of workers
  int missing_servers_ = 0;                 // that were lost or wanted, and have not come
  std::string lost_server_;                 // the last of them
  int missing_copies_ = 0;                  // of the network, likewise: these five where copies come whole
  std::string lost_worker_;                 // the last, in whose place one may be started
  std::set<int> broken_copies_;             // that lost a worker, or one who was to be
  std::optional<Clock::time_point> without_workers_since_;
  std::string shares_;  // of a network that is cut, where they were measured

  bool no_workers_ = false;  // and some there were
  std::string stop_reason_;
  std::optional<std::string> failure_;  // the first
  bool bad_input_ = false;              // is why
  bool last_worker_was_lost_ = false;   // of those that went
  std::chrono::milliseconds stop_limit_{0};
  Clock::time_point stop_deadline_;

  std::optional<LeaseTable> leases_;  ///< nothing as long as there is no plan
  std::deque<WaitingRequest> lease_requests_;
  struct Fence {
    std::uint64_t member;                 // whose leases wait for it
    std::set<std::uint64_t> unconfirmed;  // servers
  };
  std::map<std::uint64_t, Fence> fences_;  // by the incarnation that is fenced

  std::optional<LeaseRecovery> recovery_;
  std::uint64_t last_question_ = 0;
  bool leases_planned_ = false;  // by this coordinator or one before
  std::set<std::string> chaos_done_;
};

/// Numbers given under one term are never given under another.
inline std::uint64_t first_of_term(std::uint64_t term) { return (term << 32U) + 1; }

/// Takes the same time wherever the texts differ.
bool equal_in_constant_time(std::string_view a, std::string_view b);

}  // namespace distbelief
