#include "train/served_control.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace distbelief {
namespace {

constexpr std::chrono::seconds kLeadPatience{10};

int workers_in(const View& view) {
  return static_cast<int>(
      std::ranges::count_if(view.members, [](const MemberInfo& other) { return other.role == Role::worker; }));
}

}  // namespace

ServedFounders founders_of(ControlEvents& events, const View& view) {
  ServedFounders founders;
  for (const ServerHistory::Event& event : events.server_history().events) {
    if (event.what == ServerHistory::What::began) {
      founders.workers = founders.server_hosts.empty() ? event.rank.value : founders.workers;
      founders.server_hosts.push_back(event.host);
    }
  }
  if (founders.workers == 0) {
    founders.inside = true;
    founders.workers =
        founders.server_hosts.empty() ? workers_in(view) : static_cast<int>(founders.server_hosts.size());
  }
  return founders;
}

ServedWatch::ServedWatch(const Member& member, ControlEvents& events, const View& first)
    : member_(member), events_(events), looked_for_lost_(first.number) {
  for (const MemberInfo& other : first.members) {
    seen_.emplace(other.incarnation, other);
    if (other.role == Role::worker) {
      known_.emplace(other.incarnation, other);
      workers_[other.incarnation] = other.rank;
    }
  }
}

std::vector<ServedTeam::LostWorker> ServedWatch::newly_lost() {
  const auto meets = [&](const MemberInfo& other) {
    if (other.role == Role::worker && known_.emplace(other.incarnation, other).second) {
      workers_[other.incarnation] = other.rank;
    }
  };
  for (const MemberInfo& other : events_.members_since(looked_for_lost_)) {
    meets(other);
  }
  for (const ControlEvents::Loss& loss : events_.lost()) {  // it may have been in no view that came here
    meets(loss.member);
  }
  std::set<std::uint64_t> here;
  for (const MemberInfo& other : member_.view().members) {
    here.insert(other.incarnation);
  }
  std::vector<ServedTeam::LostWorker> lost;
  for (const auto& [incarnation, rank] : workers_) {
    if (!here.contains(incarnation)) {
      lost.push_back({incarnation, rank});
    }
  }
  for (const ServedTeam::LostWorker& worker : lost) {
    workers_.erase(worker.incarnation);
  }
  return lost;
}

std::vector<ServedTeam::Change> ServedWatch::changes() {
  const View view = member_.view();
  std::vector<ServedTeam::Change> changes;
  std::map<std::uint64_t, MemberInfo> now;
  for (const MemberInfo& other : view.members) {
    now.emplace(other.incarnation, other);
    if (!seen_.contains(other.incarnation)) {
      changes.push_back({.what = ServedTeam::Change::What::joined, .who = describe(other), .role = other.role});
    }
  }
  const std::vector<ControlEvents::Loss> lost = events_.lost();
  for (const auto& [incarnation, other] : seen_) {
    if (now.contains(incarnation) || std::ranges::count(view.done, other.id) > 0) {
      continue;
    }
    const auto loss = std::ranges::find_if(
        lost, [&](const ControlEvents::Loss& one) { return one.member.incarnation == incarnation; });
    const bool is_lost = loss != lost.end();
    changes.push_back({.what = is_lost ? ServedTeam::Change::What::lost : ServedTeam::Change::What::left,
                       .who = describe(other),
                       .why = is_lost ? loss->reason : "",
                       .role = other.role});
  }
  for (ServedTeam::Change& change : changes) {
    change.servers = static_cast<int>(
        std::ranges::count_if(view.members, [](const MemberInfo& other) { return other.role == Role::server; }));
  }
  seen_ = std::move(now);
  return changes;
}

ServedTeam::WorkersLeft ServedWatch::workers_left() const {
  ServedTeam::WorkersLeft left;
  if (events_.coordinator_lost()) {
    return left;  // nobody will ever tell; links to them are given up
  }
  const View view = member_.view();
  left.awaited = view.awaited;
  for (const MemberInfo& other : view.members) {
    if (other.role == Role::worker) {
      left.incarnations.push_back(other.incarnation);
    }
  }
  return left;
}

int ServedWatch::workers_taking_part() const {
  const View view = member_.view();
  return workers_in(view) + static_cast<int>(view.done.size());
}

std::string ServedWatch::names_left() const {
  std::string names;
  for (const MemberInfo& other : member_.view().members) {
    if (other.role == Role::worker) {
      names += (names.empty() ? "" : ", ") + describe(other);
    }
  }
  return names;
}

std::unique_ptr<ServedRoutes> served_routes(const RunConfig& config, const ServedFounders& founders,
                                            ControlEvents& events, const ServedWatch& watch) {
  if (holders_of(config) < 2 && !parameters_may_move(config)) {
    return nullptr;
  }
  const Rank first = founders.first_server();
  return std::make_unique<ServedRoutes>(
      founders.server_hosts, static_cast<int>(config.replication), first,
      ServedRoutes::Events{
          .since = [&events](std::size_t from) { return events.server_events(from); },
          .is_gone = [&watch, first](int server) { return watch.is_gone(Rank{first.value + server}); }});
}

ServedTeam served_team(const ServedControl& control, const ServedFounders& founders, Fabric& fabric, int parts) {
  Member& member = control.member;
  ServedWatch& watch = control.watch;
  LeaseQuestions& questions = control.questions;
  ServedRoutes* const routes = control.routes;
  ServedTeam team;
  team.routes = routes;
  team.servers_may_change = control.servers_may_change;
  team.shelves = control.shelves;
  if (control.late) {
    team.is_late_server = founders.inside || member.self().role == Role::server;
    for (const MemberInfo& other : control.view.members) {
      if (founders.inside || other.role == Role::server) {
        team.servers_before.push_back(other.rank);
      }
      const bool is_late_worker = other.role == Role::worker && other.rank.value >= founders.workers;
      if (is_late_worker && control.link_rule.is_ready(control.view, other)) {  // or it comes as a newcomer
        team.late_before.push_back({other.incarnation, other.rank});
      }
    }
  }
  team.tell = [&member](const ServerNews& news) { member.tell_of_servers(news); };
  team.parts = parts;
  team.fabric = &fabric;
  team.view = 1;  // of the job's beginning, whoever comes later
  team.incarnation = member.self().incarnation;
  team.workers = founders.workers;
  team.inside = founders.inside;
  team.servers = team.inside ? team.workers : static_cast<int>(founders.server_hosts.size());
  team.leases = &control.leases;
  team.plan_leases = [&member](const LeaseTable::Options& plan, std::uint64_t answers) {
    member.plan_leases(plan, answers);
  };
  team.lease_question = [&questions] { return questions.take(); };
  team.report_leases = [&member](const std::vector<LeaseReport>& reports, std::uint64_t answers) {
    member.report_leases(reports, answers);
  };
  if (!team.ends_with_a_worker()) {
    team.newly_lost = [&watch] { return watch.newly_lost(); };
    team.changes = [&watch] { return watch.changes(); };
  }
  if (control.newcomers != nullptr) {
    team.newcomers = [newcomers = control.newcomers] { return newcomers->take(); };
  }
  team.fenced = [&member](std::uint64_t incarnation, const std::optional<std::vector<PushId>>& open) {
    std::optional<std::vector<Member::LeaseProgress>> progress;
    if (open) {
      progress.emplace();
      for (const PushId& push : *open) {
        progress->push_back({push.lease, push.seq});
      }
    }
    member.confirm_fence(incarnation, progress);
  };
  team.workers_left = [&watch] { return watch.workers_left(); };
  team.coordinator_lost = [&watch] { return watch.coordinator_lost(); };
  team.tell_shares = [&member](const std::string& shares) { member.tell_shares(shares); };
  team.workers_taking_part = [&watch] { return watch.workers_taking_part(); };
  team.still_leads = [&member, &watch] {
    (void)member.flush(Clock::now() + kLeadPatience);  // the answer brings what it has missed
    return !watch.is_given_up();
  };
  team.names_left = [&watch] { return watch.names_left(); };
  team.given_up = [&watch] { return watch.given_up(); };
  team.leader_left = [&watch, routes, leader = team.leader()] {
    return routes != nullptr ? !routes->leader() : watch.is_gone(leader);
  };
  return team;
}

}  // namespace distbelief
