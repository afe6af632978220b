#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "cluster/chaos_script.h"

namespace distbelief {

/// What a job consists of, and how patient its coordinator is.
struct JobRules {
  std::string version = {};        ///< of the program; others are refused
  std::string configuration = {};  ///< a digest; workers and servers with another are refused
  std::string token = {};
  int workers = 1;
  int servers = 0;
  int parts = 1;              ///< workers that hold one copy of the network together, one rank after the other
  bool has_launcher = false;  ///< one will join, and the job ends when it is gone
  bool takes_late_members = true;
  bool workers_may_leave = false;  ///< the others can do without one that is told to

  std::chrono::milliseconds join_limit{60'000};          ///< until all are there
  std::chrono::milliseconds heartbeat{500};              ///< how often members speak
  std::chrono::milliseconds silence_limit{5'000};        ///< without a word: dead
  std::chrono::milliseconds reconnect_limit{500};        ///< a closed connection, and not seen to exit
  std::chrono::milliseconds cut_reconnect_limit{2'000};  ///< the same after a silence: its link was cut, and is back
  std::chrono::milliseconds stall_limit{60'000};         ///< see stall.h; 0: never told
  std::chrono::milliseconds stop_limit{60'000};          ///< between the order to stop and the end
  std::chrono::milliseconds launcher_stop_limit{4'000};  ///< the same, when there is no launcher any more
  std::chrono::milliseconds gap_limit{1'000};      ///< longer between two events: the coordinator was stopped, not they
  std::chrono::milliseconds return_grace{5'000};   ///< of a coordinator that came back: until then nobody is missed
  std::chrono::milliseconds return_limit{30'000};  ///< how long members wait for one to come back

  /// Samples that a certain worker is given as long as it lives, whoever asks: --chaos has plans for it there.
  std::vector<ChaosScript::Rendezvous> rendezvous = {};
  /// Events of --chaos that this coordinator dies of, when one who trains says that it is time.
  std::vector<std::string> deaths = {};

  std::int64_t samples_per_epoch = 0;  ///< for leases; 0: none, unless a server brings a plan
  std::int64_t first_epoch = 0;
  std::int64_t epochs = 0;
};

}  // namespace distbelief
