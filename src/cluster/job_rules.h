#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/process_identity.h"
#include "cluster/chaos_script.h"

namespace distbelief {

/// What a job consists of, and how patient its coordinator is.
struct JobRules {
  std::string version = {};        ///< of the program; others are refused
  std::string configuration = {};  ///< a digest; workers and servers with another are refused
  std::string token = {};
  std::string invitation = {};           ///< what a process must know to join, without the token; as text
  std::chrono::milliseconds made_at{0};  ///< since 1970: when this coordinator was made
  int workers = 1;
  int servers = 0;
  /// Without servers: each worker holds parameters, of which another has a copy.
  bool workers_serve = false;
  int parts = 1;                   ///< workers that hold one copy of the network together, one rank after the other
  bool has_launcher = false;       ///< one will join, and the job ends when it is gone
  bool outlives_launcher = false;  ///< of a coordinator on another machine: the launcher may be lost with its own
  bool takes_late_members = true;  ///< at any time
  /// Where workers hold a network that is cut, without servers: who comes takes the place of a worker that died, for
  /// which the others wait, or waits until there are enough for one more copy of the network; and copies may leave.
  bool workers_hold_parts() const { return servers == 0 && parts > 1; }
  /// Where servers hold a network that is cut, copies of it need nothing from each other, and come and go whole: who
  /// comes waits until there are enough for one, and so does who is left of one that lost a worker.
  bool copies_come_whole() const { return servers > 0 && parts > 1; }
  std::uint64_t most_views = 0;          ///< that the members can tell apart; 0: any number
  bool workers_may_leave = false;        ///< the others can do without one that is told to
  bool servers_may_change = false;       ///< others may come while the job runs, and all but the last may leave
  bool launcher_starts_workers = false;  ///< and servers, when it is told to
  int most_processes = 1000;             ///< that it starts so: the machine has so many cores
  int standbys = 0;                      ///< that it starts with the job, which waits for them for half of join_limit
  bool servers_have_copies = true;       ///< others have what one that dies held, if there are others
  int restarts = 0;                      ///< of the job, and of workers and servers that die, by the launcher
  int restarts_before = 0;               ///< of these, how many there were

  std::chrono::milliseconds join_limit{60'000};          ///< until all are there
  std::chrono::milliseconds heartbeat{500};              ///< how often members speak
  std::chrono::milliseconds silence_limit{5'000};        ///< without a word: dead
  std::chrono::milliseconds reconnect_limit{500};        ///< a closed connection, and not seen to exit
  std::chrono::milliseconds cut_reconnect_limit{2'000};  ///< the same after a silence: its link was cut, and is back
  std::chrono::milliseconds stall_limit{60'000};         ///< see stall.h; 0: never told
  std::chrono::milliseconds straggler_limit{10'000};     ///< see straggler.h; 0: never told
  std::chrono::milliseconds leave_delay{500};            ///< until a worker that wants to may leave: do all want to?
  std::chrono::milliseconds replacement_limit{20'000};   ///< for who is to take a dead worker's place to be there
  std::chrono::milliseconds stop_limit{60'000};          ///< between the order to stop and the end
  std::chrono::milliseconds launcher_stop_limit{4'000};  ///< the same, when there is no launcher any more
  std::chrono::milliseconds gap_limit{1'000};      ///< longer between two events: the coordinator was stopped, not they
  std::chrono::milliseconds return_grace{5'000};   ///< of a coordinator that came back: until then nobody is missed
  std::chrono::milliseconds return_limit{30'000};  ///< how long members wait for one to come back

  /// base/process_identity.h's, or null: nobody looks. A member that is seen from here is dead when its connection is
  /// closed and its process gone, and has the time of one that is silent as long as it runs: a machine may just be
  /// busy.
  std::function<ProcessSight(const ProcessIdentity& process)> look_for_process = {};

  /// Samples that a certain worker is given as long as it lives, whoever asks: --chaos has plans for it there.
  std::vector<ChaosScript::Rendezvous> rendezvous = {};
  /// Events of --chaos that this coordinator dies of, when one who trains says that it is time.
  std::vector<std::string> deaths = {};

  std::int64_t samples_per_epoch = 0;  ///< for leases; 0: none, unless a server brings a plan
  std::int64_t first_epoch = 0;
  std::int64_t epochs = 0;
};

}  // namespace distbelief
