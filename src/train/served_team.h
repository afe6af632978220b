#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cluster/lease_table.h"
#include "cluster/member.h"
#include "params/parameter_shard.h"
#include "train/lease_source.h"
#include "train/served_routes.h"
#include "transport/fabric.h"

namespace distbelief {

/// A job with parameter servers, as one of its processes sees it. Ranks are the workers, then the servers, unless each
/// worker has a server inside, then workers and servers that came later. The first server leads: it keeps the books,
/// evaluates, and writes the run's folder. Where a network is cut, each copy of it is of `parts` workers in a row, the
/// first of whom has a rank that is a multiple of `parts`, also of those that came later, and servers hold the
/// parameters of each part for themselves: a worker talks about its own only. The first worker of a copy leases samples
/// for all of it.
struct ServedTeam {
  Fabric* fabric = nullptr;  ///< borrowed
  std::uint32_t view = 0;
  std::uint64_t incarnation = 0;
  int workers = 1;  ///< these two: with which the job began
  int servers = 1;
  int parts = 1;        ///< workers of a copy of the network
  bool inside = false;  ///< servers are inside the workers
  /// Where shelves may have two holders, or move: who holds them now; borrowed. Null: each is with its server, and lost
  /// with it.
  ServedRoutes* routes = nullptr;
  bool servers_may_change = false;  ///< others may come, and some of them go
  int shelves = 0;                  ///< of those, as the user wants; 0: see shelves_of()
  /// This process is a server, or has one inside, that came later.
  bool is_late_server = false;
  Clock::duration patience = std::chrono::minutes(10);  ///< for whoever lives but does not answer

  LeaseSource* leases = nullptr;  ///< a worker's; borrowed
  /// The leader's: what there is to lease, at the beginning (0) or as the answer to a question `for_plan`.
  std::function<void(const LeaseTable::Options&, std::uint64_t answers)> plan_leases = {};
  /// A server's: what a coordinator that came back asks, if it does, and the answer to all that is not `for_plan`.
  std::function<std::optional<LeaseQuestion>()> lease_question = {};
  std::function<void(const std::vector<LeaseReport>&, std::uint64_t answers)> report_leases = {};
  struct LostWorker {
    std::uint64_t incarnation = 0;
    Rank rank = {};
  };
  /// Of a process that came later: workers that came later too, before it did, and are still there, itself if it is
  /// one; and servers.
  std::vector<LostWorker> late_before = {};
  std::vector<Rank> servers_before = {};
  std::function<void(const ServerNews&)> tell = {};          ///< a server's
  std::function<std::vector<LostWorker>()> newly_lost = {};  ///< a server's
  /// Somebody who came while the job runs. `link` is to be called on the thread that uses the fabric, before anything
  /// is said to it or heard of it.
  struct Newcomer {
    Rank rank = {};
    std::uint64_t incarnation = 0;
    bool is_worker = true;  ///< these two: one of them or, where servers are inside workers, both
    bool is_server = false;
    std::function<void()> link = {};
  };
  std::function<std::vector<Newcomer>()> newcomers = {};  ///< since the last call
  /// What people should know of who comes and goes.
  struct Change {
    enum class What : std::uint8_t { joined, left, lost };
    What what = What::joined;
    std::string who = {};  ///< "worker 1 (pid 4711 on alpha)"
    std::string why = {};  ///< of a loss
    Role role = Role::worker;
    int servers = 0;  ///< that there are now
  };
  std::function<std::vector<Change>()> changes = {};  ///< since the last call; the leader's
  /// A server's answer to that: how far leases are in all that it holds; nothing: it holds nothing.
  std::function<void(std::uint64_t, const std::optional<std::vector<PushId>>&)> fenced = {};
  struct WorkersLeft {
    std::vector<std::uint64_t> incarnations = {};
    /// Where a network is cut, and no copy of it is left: how many are on their way to be one.
    int awaited = 0;
  };
  /// A server's: workers that live and, unless servers are inside, are not done. All of one view.
  std::function<WorkersLeft()> workers_left = {};
  /// The job goes on without a coordinator, and not for long.
  std::function<bool()> coordinator_lost = {};
  /// The leader's: the shares of a network that is cut, as they were measured, for who comes later.
  std::function<void(const std::string&)> tell_shares = {};
  std::function<std::string()> names_left = {};   ///< the leader's: of those workers, for people
  std::function<int()> workers_taking_part = {};  ///< likewise: how many, with those that are done
  /// The leader's, who may have been stopped for a while: the coordinator has heard it since, and has not given it up.
  /// Otherwise another leads, and the run's folder is not this one's any more.
  std::function<bool()> still_leads = {};
  std::function<bool()> leader_left = {};  ///< all others'
  std::function<bool()> given_up = {};     ///< a worker's: the job goes on without it; empty: that cannot happen
  /// Called first on each thread that moves bytes or answers requests: it may work where nobody computes.
  std::function<void()> side_thread_begins = {};

  Rank rank_of_server(int server) const { return Rank{server + (inside ? 0 : workers)}; }
  /// What people call it: "server 3", or the worker that it is inside of.
  std::string name_of_server(int server) const {
    return kind_of_server() + " " + std::to_string(rank_of_server(server).value);
  }
  std::string kind_of_server() const { return inside ? "worker" : "server"; }
  bool is_worker() const {
    return inside || fabric->rank().value < workers || (is_late(fabric->rank()) && !is_late_server);
  }
  bool is_late(Rank worker) const { return worker.value >= workers + (inside ? 0 : servers); }
  bool is_server() const { return inside || !is_worker(); }
  /// The parameters of a worker that is lost are lost with it.
  bool ends_with_a_worker() const { return inside && routes == nullptr; }
  int copies() const { return workers / parts; }  ///< with which the job began
  int part_of(Rank worker) const { return worker.value % parts; }
  /// Of a server.
  int number() const { return fabric->rank().value - (inside ? 0 : workers); }
  /// Who leads from the start. Another takes over when it is lost or leaves: see ServedLinks::leads().
  Rank leader() const { return rank_of_server(0); }
  bool leads() const { return fabric->rank() == leader(); }
};

}  // namespace distbelief
