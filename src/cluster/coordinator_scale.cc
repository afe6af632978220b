// Workers, and servers, that come to or leave a running job because somebody wants so many.
#include <fmt/format.h>

#include <algorithm>
#include <ranges>
#include <utility>

#include "cluster/coordinator_state.h"

namespace distbelief {
namespace {

std::string counted_workers(int count) { return fmt::format("{} worker{}", count, count == 1 ? "" : "s"); }

std::string counted_servers(int count) { return fmt::format("{} server{}", count, count == 1 ? "" : "s"); }

std::string are_started(int count) { return count == 1 ? "one is started" : fmt::format("{} are started", count); }

/// "worker 3", "workers 2 and 3", "workers 1, 2 and 3".
std::string named_workers(const std::vector<int>& ranks) {
  std::string names;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const std::string_view before = i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ";
    names += fmt::format("{}{}", before, ranks[i]);
  }
  return fmt::format("worker{} {}", ranks.size() == 1 ? "" : "s", names);
}

}  // namespace

void CoordinatorState::stop_as_asked(const std::string& who) {
  tell_people(fmt::format("{} were asked to end: the job stops, with a checkpoint", who));
  begin_stop(who + " were asked to end", rules_.stop_limit);
}

void CoordinatorState::look_for_wishes_to_leave() {
  if (phase_ != Phase::running) {
    return;
  }
  std::vector<Record*> wishers;
  std::vector<Record*> leavers;  // servers: what is with them, workers are not asked about
  bool all = true;
  bool due = false;
  bool launcher_may_be_gone = false;
  for (auto& [id, record] : roster_.records()) {
    launcher_may_be_gone |= record.info.role == Role::launcher && record.state == Record::State::reconnecting;
    if (record.info.role == Role::server && record.living() && record.wants_to_leave && !record.leaving &&
        now_ - *record.wants_to_leave >= rules_.leave_delay) {
      leavers.push_back(&record);
    }
    if (record.info.role != Role::worker || !record.living()) {
      continue;
    }
    if (record.wants_to_leave) {
      wishers.push_back(&record);
      due |= now_ - *record.wants_to_leave >= rules_.leave_delay;
    } else {
      all &= record.leaving;
    }
  }
  if (launcher_may_be_gone) {  // then all are to stop, which will be known soon
    return;
  }
  const auto wants_to_leave = [](const Record* server) { return server->wants_to_leave.has_value(); };
  if (!leavers.empty() && std::ranges::all_of(staying_servers(), wants_to_leave)) {
    stop_as_asked("all servers");
    return;
  }
  for (Record* server : leavers) {
    server->wants_to_leave.reset();
    log(order_server_to_leave(*server).text());
  }
  if (!due) {
    return;
  }
  if (all) {
    stop_as_asked("all workers");
    return;
  }
  for (Record* record : wishers) {
    record->wants_to_leave.reset();
    control::Order order;
    order.set_what(control::Order::LEAVE);
    order.set_reason("its process was asked to end");
    order.set_rank(record->info.rank.value);
    const control::OrderAnswer answer = order_to_leave(order);
    log(answer.text());
    if (!answer.accepted() && !std::exchange(record->refusal_told, true)) {
      tell_people(fmt::format("{} was asked to end: {}; unless it can leave soon, the job stops, with a checkpoint",
                              describe(record->info), answer.text()));
    }
  }
}

control::OrderAnswer CoordinatorState::order_to_scale(const control::Order& order) {
  control::OrderAnswer answer;
  std::string workers;
  std::string servers;
  std::string refusal = phase_ == Phase::running ? "" : fmt::format("the job is {}", phase_text());
  if (refusal.empty()) {
    refusal = too_many(order);
  }
  if (refusal.empty()) {
    refusal = scale_servers(order.servers(), servers);
  }
  if (refusal.empty()) {
    refusal = scale_workers(order.workers(), workers);
  }
  if (!refusal.empty()) {
    answer.set_text(refusal);
    return answer;
  }
  answer.set_accepted(true);
  if (workers.empty() && servers.empty()) {
    const int now = roster_.staying(Role::server) + starting_servers_;
    const std::string and_servers = order.servers() > 0 ? ", " + counted_servers(now) : "";
    answer.set_text(
        fmt::format("{}{}, as it is", counted_workers(roster_.staying(Role::worker) + starting_), and_servers));
    return answer;
  }
  answer.set_text(workers + (workers.empty() || servers.empty() ? "" : "; ") + servers);
  log(answer.text());
  tell_people(fmt::format("scale   {}", answer.text()));
  return answer;
}

std::string CoordinatorState::scale_workers(int wanted, std::string& done) {
  const int coming = rules_.copies_come_whole() ? who_may_make_copies() : 0;
  const int now = roster_.staying(Role::worker) + starting_;
  if (wanted % rules_.parts != 0) {
    return fmt::format("{}: {} hold a copy of the network together", counted_workers(wanted),
                       counted_workers(rules_.parts));
  }
  if (wanted >= 1 && rules_.workers_hold_parts()) {
    return scale_copies(wanted, done);
  }
  if (wanted >= 1 && wanted <= now) {
    missing_copies_ = 0;  // so few are wanted
    unsaved_ = true;
  }
  if (wanted < 1 || wanted == now) {
    return {};
  }
  if (wanted > now && wanted <= now + coming) {
    done = fmt::format("{} → {}: {} on {} way", counted_workers(now), wanted,
                       coming == 1 ? "one is" : fmt::format("{} are", coming), coming == 1 ? "its" : "their");
    return {};
  }
  const int missing = wanted - now - coming;
  if (std::string refusal = wanted < now ? have_leave(now - wanted) : have_started(missing, 0); !refusal.empty()) {
    return refusal;
  }
  std::vector<int> leavers;
  for (const Record* member : roster_.members()) {
    if (member->leaving && member->info.role == Role::worker) {
      leavers.push_back(member->info.rank.value);
    }
  }
  done = fmt::format("{} → {}: {}", counted_workers(now), wanted,
                     wanted > now ? are_started(missing)
                                  : fmt::format("{} leave{}", named_workers(leavers), leavers.size() == 1 ? "s" : ""));
  return {};
}

std::string CoordinatorState::scale_servers(int wanted, std::string& done) {
  const int now = roster_.staying(Role::server) + starting_servers_;
  if (wanted == now) {
    miss_servers_of(wanted);
  }
  if (wanted < 1 || wanted == now) {
    return {};
  }
  if (!rules_.servers_may_change) {
    return rules_.servers == 0 ? "the job has no servers" : "the servers of this job stay as they are";
  }
  if (wanted > now) {
    done = fmt::format("{} → {}: {}", counted_servers(now), wanted, are_started(wanted - now));
    return have_started(0, wanted - now);
  }
  const std::vector<const Record*> leavers = staying_servers();
  const auto to_go = static_cast<std::size_t>(now - wanted);
  if (leavers.size() <= to_go) {
    return "servers that were to be started are not ready yet: try again when they are";
  }
  std::string names;
  for (std::size_t i = 0; i < to_go; ++i) {
    const Record& leaver = *leavers[leavers.size() - 1 - i];
    if (const control::OrderAnswer answer = order_server_to_leave(leaver); !answer.accepted()) {
      return answer.text();
    }
    names += fmt::format("{}server {}", names.empty() ? "" : ", ", leaver.info.rank.value);
  }
  miss_servers_of(wanted);
  done = fmt::format("{} → {}: {} leave{}", counted_servers(now), wanted, names, to_go == 1 ? "s" : "");
  return {};
}

void CoordinatorState::miss_servers_of(int wanted) {
  missing_servers_ = std::max(0, wanted - roster_.staying(Role::server));  // those that are on their way, too
  unsaved_ = true;
}

std::string CoordinatorState::have_leave(int workers) {
  std::vector<int> ranks;
  for (const Record* member : roster_.members()) {
    if (member->info.role == Role::worker && !member->leaving) {
      ranks.push_back(member->info.rank.value);
    }
  }
  const int to_go = std::min(workers, static_cast<int>(ranks.size()) - rules_.parts);
  if (to_go < workers) {
    return "workers that were to be started have not come yet: try again when they have";
  }
  for (int i = 0; i < to_go; i += rules_.parts) {  // which go together
    control::Order order;
    order.set_what(control::Order::LEAVE);
    order.set_reason("fewer workers are wanted");
    order.set_rank(ranks[ranks.size() - 1 - static_cast<std::size_t>(i)]);
    if (const control::OrderAnswer answer = order_to_leave(order); !answer.accepted()) {
      return answer.text();
    }
  }
  return {};
}

const Record* CoordinatorState::living_launcher() const {
  const auto found = std::ranges::find_if(roster_.records(), [](const auto& entry) {
    return entry.second.info.role == Role::launcher && entry.second.living();
  });
  return found == roster_.records().end() ? nullptr : &found->second;
}

std::string CoordinatorState::too_many(const control::Order& order) const {
  const Record* const launcher = living_launcher();
  if (launcher == nullptr) {
    return {};
  }
  const std::vector<const Record*> members = roster_.members();
  const auto here =
      std::ranges::count_if(members, [&](const Record* member) { return member->info.host == launcher->info.host; });
  const std::int64_t coming = starting_ + starting_newcomers_ + starting_servers_;
  const auto missing = [](std::int64_t wanted, std::int64_t now) { return std::max<std::int64_t>(0, wanted - now); };
  const std::int64_t started =
      missing(order.workers(), roster_.staying(Role::worker) + starting_ + starting_newcomers_) +
      missing(order.servers(), roster_.staying(Role::server) + starting_servers_);
  if (started == 0 || here + coming + started <= rules_.most_processes) {
    return {};
  }
  return fmt::format(
      "{} processes of the job are here, and more than {} are too many for this machine: run 'distbelief "
      "join' on others",
      here + coming, rules_.most_processes);
}

std::string CoordinatorState::have_started(int workers, int servers) {
  const bool by_copies = rules_.workers_hold_parts() || rules_.copies_come_whole();
  if (workers > 0 && !rules_.takes_late_members && !by_copies) {
    return "this job takes no workers in while it runs: stop it, and go on with --resume and more";
  }
  const std::string reason = workers > 0 ? "more workers are wanted" : "more servers are wanted";
  if (!rules_.launcher_starts_workers || !tell_to_start(workers, servers, reason)) {
    return "nobody here can start workers: run 'distbelief join' on the machines that are to help";
  }
  (by_copies ? starting_newcomers_ : starting_) += workers;
  starting_servers_ += servers;
  missing_servers_ = std::max(missing_servers_, starting_servers_);  // whoever dies meanwhile is missing besides
  return {};
}

bool CoordinatorState::tell_to_start(int workers, int servers, const std::string& reason) {
  const Record* const launcher = living_launcher();
  if (launcher == nullptr) {
    return false;
  }
  control::Order order;
  order.set_what(control::Order::START);
  order.set_term(term_);
  order.set_reason(reason);
  order.set_workers(workers);
  order.set_servers(servers);
  tell(*roster_.find(launcher->info.id), order);
  starting_since_ = now_;
  unsaved_ = true;
  return true;
}

}  // namespace distbelief
