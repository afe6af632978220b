#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/process_identity.h"
#include "cluster/outbox.h"
#include "transport/socket/message_server.h"

namespace distbelief {

/// One process, as the coordinator's books have it.
struct Record {
  enum class State : std::uint8_t { alive, reconnecting, left, lost };

  MemberInfo info = {};
  State state = State::alive;
  std::uint64_t nonce = 0;
  std::uint64_t launch = 0;
  ProcessIdentity process = {};  ///< when it joined; host 0: it could not be seen from here
  std::uint64_t term = 0;        ///< in which it joined; 0: under a coordinator before
  ConnectionId connection = {};  ///< 0: none
  Outbox outbox = {};
  std::uint64_t received = 0;  ///< numbered messages that came from it
  Clock::time_point heard_at = {};
  Clock::time_point disconnected_at = {};
  bool is_awaited = false;  ///< it was with the coordinator before, and has not come to this one
  bool was_silent = false;  ///< before it was disconnected, for longer than two heartbeats
  control::Progress progress = {};
  Clock::time_point moved_at = {};             ///< when its step last changed
  bool stall_told = false;                     ///< since then
  std::optional<control::ExitSeen> exit = {};  ///< as the launcher saw it
  Clock::time_point exit_at = {};
  std::optional<Clock::time_point> wants_to_leave = {};  ///< since when; it was not answered yet
  bool leaving = false;  ///< it was asked to leave; of a standby: to take over, until it has come
  /// Until when a standby that was called, or a worker that may come again, has time to come.
  Clock::time_point expected_until = {};
  bool grows = false;              ///< a standby that waits for enough others for a copy of the network
  int called_rank = -1;            ///< of a standby that was called: as which worker; -1: any
  bool may_come_again = false;     ///< of a lost worker: its process was told to wait for another copy
  bool makes_copy = false;         ///< it was called for that, not in another's place
  bool refusal_told = false;       ///< that it cannot leave
  Clock::time_point left_at = {};  ///< of one that left, which this coordinator saw
  bool succeeded = false;          ///< of one that left
  bool bad_input = false;          ///< likewise: it failed for what the user gave it
  std::string reason = {};         ///< of one that left or was lost

  bool living() const { return state == State::alive || state == State::reconnecting; }
  bool takes_part() const { return info.role == Role::worker || info.role == Role::server; }
};

/// Who was ever in a job, and which places it has: ranks 0 … workers - 1 are workers, the next `servers` are servers,
/// and whoever joins later gets the next rank. Once the job has begun no rank is given twice. One thread.
class Roster {
 public:
  Roster(int workers, int servers) : workers_(workers), servers_(servers) {}

  struct Place {
    Role role = Role::any;
    Rank rank = {};
  };
  /// The place that a newcomer gets, which add() then takes, or why there is none.
  std::variant<Place, std::string> find_place(Role wanted, Rank rank) const;

  /// The reference stays good until forget_observers() forgets it.
  Record& add(Record record);
  /// One that another roster had, in the order in which that one had added them.
  Record& restore(Record record);
  /// Those that are gone: every look at the status is one, and nobody asks for them again.
  void forget_observers();
  /// So many places one after the other, the first a multiple of that, for who is to join with these ranks. Returns
  /// the first.
  int reserve(int count);
  /// Ranks below it are not given to others.
  void keep_free(int below) { reserved_ = std::max(reserved_, below); }
  /// The place of one that went before the job began can be taken by another.
  void vacate(const Record& record);
  /// From now on ranks stay with whom they were given to.
  void begin() { begun_ = true; }

  void connect(Record& record, ConnectionId connection);
  void disconnect(Record& record);

  Record* find(std::uint64_t id);
  Record* find_connection(ConnectionId connection);
  Record* find_nonce(std::uint64_t nonce);
  /// The process that the launcher means; the living one before those that are gone.
  Record* find_process(const control::ExitSeen& exit);

  int living(Role role) const;
  /// Those that live and were not asked to leave.
  int staying(Role role) const;
  /// Everybody whom the job was started with is there.
  bool complete() const { return living(Role::worker) >= workers_ && living(Role::server) >= servers_; }
  /// "worker 1, server 3": the empty places, before the job began.
  std::string missing() const;
  /// "1 of 3 processes".
  std::string missing_count() const;
  /// Workers and servers that live, in order of rank.
  std::vector<const Record*> members() const;

  std::map<std::uint64_t, Record>& records() { return records_; }
  const std::map<std::uint64_t, Record>& records() const { return records_; }

 private:
  Role role_of_rank(int rank) const;
  std::variant<Place, std::string> place_at(Role wanted, Rank rank) const;
  int places() const { return workers_ + servers_; }
  /// After those of all who ever were, and of all who were promised one.
  int next_rank() const;

  const int workers_;
  const int servers_;
  bool begun_ = false;
  int reserved_ = 0;
  std::map<std::uint64_t, Record> records_;              // by id
  std::map<int, std::uint64_t> holders_;                 // by rank
  std::map<ConnectionId, std::uint64_t> by_connection_;  // to ids
};

}  // namespace distbelief
