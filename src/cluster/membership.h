#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "transport/fabric.h"

namespace distbelief {

/// What a process does in a job. `any` is asked for only: the coordinator answers with what the job lacks.
enum class Role : std::uint8_t { any, worker, server, launcher, observer, standby };

/// "worker", for people.
std::string_view role_name(Role role);

/// One process of a job, as all others know it.
struct MemberInfo {
  std::uint64_t id = 0;           ///< of the place in the job's books; never given to another
  std::uint64_t incarnation = 0;  ///< whoever is declared dead and comes again has a higher one
  Role role = Role::any;
  Rank rank = {};  ///< in the data plane; -1 for launchers, observers and standbys
  std::string host = {};
  int pid = 0;
  std::string facts = {};  ///< what it told the others when it joined, as a line

  friend bool operator==(const MemberInfo&, const MemberInfo&) = default;
};

/// Two deaths that became known so far apart do not follow from each other: the job survived the first.
inline bool is_another_accident(Clock::time_point before, Clock::time_point now) {
  return now - before > std::chrono::seconds(2);
}

/// "worker 1 (pid 4711 on alpha)": how every message names a process.
std::string describe(const MemberInfo& member);

/// What a worker says with its last word when it has done all there was to do.
inline constexpr const char* kAllDone = "finished";
/// The same of one that was to stop before it had all those that it begins with.
inline constexpr const char* kNeverBegan = "stopped before training began";

/// The last word of a standby that was called, before it joins as a worker.
inline constexpr const char* kTakesOver = "takes over";

/// What the launcher calls those that it starts because the coordinator says so; a number follows.
inline constexpr const char* kStartedWorker = "newcomer";
inline constexpr const char* kStartedServer = "new server";

/// The workers and servers of a job at one time. Views are numbered from 1; the first one begins the job.
struct View {
  std::uint64_t term = 0;  ///< of the coordinator that issued it
  std::uint64_t number = 0;
  std::vector<MemberInfo> members = {};    ///< in order of rank
  std::string reason = {};                 ///< why it is not the view before
  bool peaceful = false;                   ///< nobody is missing but who was done and left
  std::vector<std::uint64_t> failed = {};  ///< ids of all that are gone, but not because they were done
  std::vector<std::uint64_t> done = {};    ///< ids of workers that had nothing more to do, and left unasked
  bool complete = false;                   ///< no fewer workers and servers than the job was started with
  int awaited = 0;  ///< who are on their way to take the places of the dead: the view with them is to be waited for
  std::vector<Rank> leaving = {};  ///< where a network is cut: whom the others shall go on without, if they can
  int most_workers = 0;            ///< likewise: so many shall go on; 0: all

  /// Nothing when that rank is not (or no longer) there.
  const MemberInfo* find(Rank rank) const;
};

/// What became of the servers of a job, in order, from its beginning on: who holds which parameters follows from it.
struct ServerHistory {
  enum class What : std::uint8_t {
    began,  ///< with the job
    lost,
    joined,  ///< later, and is ready to hold something
    leaves,  ///< was asked to, and goes when it holds nothing any more
    moved,   ///< a shelf of parameters is with these now
  };
  struct Event {
    What what = What::began;
    Rank rank = {};         ///< of a shelf that moved: who answers for it
    std::string host = {};  ///< of one that began or joined
    int shelf = 0;          ///< these two: of what moved
    Rank backup = {};       ///< -1: it has none
    friend bool operator==(const Event&, const Event&) = default;
  };
  std::vector<Event> events = {};

  friend bool operator==(const ServerHistory&, const ServerHistory&) = default;
};

/// What a server tells the coordinator about servers, which makes it an event for all, if it can be true: the
/// server has heard of all who were lost, came or are to leave.
struct ServerNews {
  ServerHistory::What what = ServerHistory::What::joined;  ///< joined or moved
  int shelf = 0;
  Rank primary = {};
  Rank backup = {};           ///< -1: there is none
  std::uint64_t changes = 0;  ///< events that neither began nor moved anything, of which it has heard
};

/// What a worker has spent its time with since it began, in seconds, and for how many steps (of one batch each). Not
/// what it waited for others.
struct StepTimes {
  std::int64_t steps = 0;
  double computed = 0;
  double loaded = 0;  ///< waited for its own data
  double linked = 0;  ///< waited for messages that were long on their way

  friend bool operator==(const StepTimes&, const StepTimes&) = default;
};

/// How far a process has come; what heartbeats carry.
struct Progress {
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  double samples_per_second = 0;
  double loss = 0;
  std::string operation = {};  ///< "all-reduce 17", "loading", "evaluating"
  bool waits_for_others = false;
  StepTimes times = {};
  std::int64_t share = 0;  ///< samples of each step, where they are by speed; 0: as many as everybody

  friend bool operator==(const Progress&, const Progress&) = default;
};

/// A contiguous piece of an epoch's order of samples that one worker is to train on.
struct Lease {
  std::uint64_t id = 0;
  std::int64_t epoch = 0;
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::uint64_t next_push = 0;  ///< pushes below it are in every block already: a dead worker made them
  std::uint64_t low_water = 0;  ///< all leases below were done when this one was given
  bool begun = false;           ///< somebody had it before, and some blocks may have pushes beyond next_push

  friend bool operator==(const Lease&, const Lease&) = default;
};

/// What the blocks of a server, or of one part of the network on it, have of leases.
struct LeaseReport {
  std::uint64_t low_water = 0;     ///< all leases below are done here
  std::vector<Lease> leases = {};  ///< with the first push that some block lacks
};

/// From a coordinator that came back, to servers: which leases are there? They are the truth.
struct LeaseQuestion {
  std::uint64_t number = 0;
  /// For the server that leads: what is to be leased, when these are the reports of all servers, and these leases are
  /// held by workers that live? New leases get numbers from `first_lease` on.
  bool for_plan = false;
  std::vector<LeaseReport> reports = {};
  std::vector<Lease> held = {};
  std::uint64_t first_lease = 0;
};

}  // namespace distbelief
