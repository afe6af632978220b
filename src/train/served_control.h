#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cluster/member.h"
#include "config/run_config.h"
#include "train/control_events.h"
#include "train/lease_questions.h"
#include "train/newcomers.h"
#include "train/served_team.h"

namespace distbelief {

/// With whom a job with parameter servers began.
struct ServedFounders {
  int workers = 0;
  bool inside = false;                         ///< servers are inside workers
  std::vector<std::string> server_hosts = {};  ///< none: inside, and what each holds is lost with it
  Rank first_server() const { return Rank{inside ? 0 : workers}; }
};
/// `view` is the first that this process is in.
ServedFounders founders_of(ControlEvents& events, const View& view);

/// What a process of a job with parameter servers asks about the others, answered from what the coordinator said.
class ServedWatch {
 public:
  /// Borrowed.
  ServedWatch(const Member& member, ControlEvents& events, const View& first);

  /// Workers that were there and are not any more, each once. For one thread.
  std::vector<ServedTeam::LostWorker> newly_lost();
  /// Who has come or gone since the last call. For one thread.
  std::vector<ServedTeam::Change> changes();
  /// See ServedTeam.
  ServedTeam::WorkersLeft workers_left() const;
  /// With those that had nothing more to do.
  int workers_taking_part() const;
  std::string names_left() const;
  /// There is no coordinator any more, though nobody was told to stop.
  bool coordinator_lost() const { return events_.coordinator_lost() && !events_.stop(); }
  bool given_up() const { return events_.coordinator_lost() || events_.stop(); }
  bool is_given_up() const { return events_.fenced(); }
  bool is_gone(Rank rank) const { return events_.coordinator_lost() || member_.view().find(rank) == nullptr; }

 private:
  const Member& member_;
  ControlEvents& events_;
  std::uint64_t looked_for_lost_;              ///< the last view
  std::map<std::uint64_t, MemberInfo> known_;  ///< workers that ever were, by incarnation
  std::map<std::uint64_t, Rank> workers_;      ///< that were when last looked at
  std::map<std::uint64_t, MemberInfo> seen_;   ///< the same for changes()
};

/// Who holds which parameters, where each has two holders or they may move; else null. All but `config` is borrowed.
std::unique_ptr<ServedRoutes> served_routes(const RunConfig& config, const ServedFounders& founders,
                                            ControlEvents& events, const ServedWatch& watch);

/// What a team is made of; borrowed.
struct ServedControl {
  Member& member;
  ServedWatch& watch;
  LeaseSource& leases;
  LeaseQuestions& questions;
  const View& view;   ///< the first that this process is in
  bool late = false;  ///< it came while the job ran
  bool servers_may_change = false;
  int shelves = 0;
  ServedRoutes* routes = nullptr;
  Newcomers* newcomers = nullptr;
  const ServedLinkRule& link_rule;
};
ServedTeam served_team(const ServedControl& control, const ServedFounders& founders, Fabric& fabric, int parts);

}  // namespace distbelief
