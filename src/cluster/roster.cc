#include "cluster/roster.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace distbelief {

Role Roster::role_of_rank(int rank) const {
  if (rank < workers_) {
    return Role::worker;
  }
  return rank < places() ? Role::server : Role::any;
}

std::variant<Roster::Place, std::string> Roster::find_place(Role wanted, Rank rank) const {
  if (wanted == Role::observer || wanted == Role::standby) {
    return Place{wanted, Rank{-1}};
  }
  if (wanted == Role::launcher) {
    for (const auto& [id, record] : records_) {
      if (record.info.role == Role::launcher && record.living()) {
        return fmt::format("the job has a launcher already, {}", describe(record.info));
      }
    }
    return Place{Role::launcher, Rank{-1}};
  }
  if (rank.value >= 0) {
    return place_at(wanted, rank);
  }
  for (int free = 0; free < places() && !begun_; ++free) {
    const Role role = role_of_rank(free);
    if (!holders_.contains(free) && (wanted == Role::any || wanted == role)) {
      return Place{role, Rank{free}};
    }
  }
  if (!begun_) {
    const int expected = wanted == Role::any ? places() : wanted == Role::worker ? workers_ : servers_;
    return fmt::format("all {} {}s of the job are there already", expected, role_name(wanted));
  }
  return Place{wanted == Role::any ? Role::worker : wanted, Rank{next_rank()}};
}

int Roster::next_rank() const {
  const int after_all = holders_.empty() ? 0 : holders_.rbegin()->first + 1;
  return std::max({places(), after_all, reserved_});
}

int Roster::reserve(int count) {
  const int first = (next_rank() + count - 1) / count * count;
  keep_free(first + count);
  return first;
}

std::variant<Roster::Place, std::string> Roster::place_at(Role wanted, Rank rank) const {
  if (const auto holder = holders_.find(rank.value); holder != holders_.end()) {
    const Record& record = records_.at(holder->second);
    return fmt::format("rank {} {} {}", rank.value, record.living() ? "is held by" : "was held by",
                       describe(record.info));
  }
  const Role role = role_of_rank(rank.value);
  if (role == Role::any) {
    if (!begun_) {
      return fmt::format("rank {} is wanted, but the job has {} processes", rank.value, places());
    }
    return Place{wanted == Role::any ? Role::worker : wanted, rank};
  }
  if (wanted != Role::any && wanted != role) {
    return fmt::format("rank {} is a {}'s in this job, not a {}'s", rank.value, role_name(role), role_name(wanted));
  }
  return Place{role, rank};
}

Record& Roster::add(Record record) {
  const std::uint64_t id = record.info.id;
  if (record.info.rank.value >= 0) {
    check(holders_.emplace(record.info.rank.value, id).second, "a rank that is given twice");
  }
  const auto [at, added] = records_.emplace(id, std::move(record));
  check(added, "a member's number that is given twice");
  return at->second;
}

Record& Roster::restore(Record record) {
  const std::uint64_t id = record.info.id;
  if (record.info.rank.value >= 0 && (begun_ || record.living())) {
    holders_[record.info.rank.value] = id;  // before the job began a rank can have had several
  }
  return records_.insert_or_assign(id, std::move(record)).first->second;
}

void Roster::forget_observers() {
  std::erase_if(records_,
                [](const auto& entry) { return entry.second.info.role == Role::observer && !entry.second.living(); });
}

void Roster::vacate(const Record& record) {
  check(!begun_, "ranks are not given twice");
  holders_.erase(record.info.rank.value);
}

void Roster::connect(Record& record, ConnectionId connection) {
  disconnect(record);
  record.connection = connection;
  by_connection_[connection] = record.info.id;
}

void Roster::disconnect(Record& record) {
  by_connection_.erase(record.connection);
  record.connection = {};
}

Record* Roster::find(std::uint64_t id) {
  const auto found = records_.find(id);
  return found == records_.end() ? nullptr : &found->second;
}

Record* Roster::find_connection(ConnectionId connection) {
  const auto found = by_connection_.find(connection);
  return found == by_connection_.end() ? nullptr : find(found->second);
}

Record* Roster::find_nonce(std::uint64_t nonce) {
  for (auto& [id, record] : records_) {
    if (record.nonce == nonce && record.living()) {
      return &record;
    }
  }
  return nullptr;
}

Record* Roster::find_process(const control::ExitSeen& exit) {
  Record* gone = nullptr;
  for (auto& [id, record] : records_) {
    const bool same = exit.launch() != 0 ? record.launch == exit.launch()
                                         : record.info.host == exit.host() && record.info.pid == exit.pid();
    if (same && record.living()) {
      return &record;
    }
    gone = same ? &record : gone;
  }
  return gone;
}

int Roster::living(Role role) const {
  return static_cast<int>(std::count_if(records_.begin(), records_.end(), [role](const auto& entry) {
    return entry.second.info.role == role && entry.second.living();
  }));
}

int Roster::staying(Role role) const {
  return static_cast<int>(std::count_if(records_.begin(), records_.end(), [role](const auto& entry) {
    const Record& record = entry.second;
    return record.info.role == role && record.living() && !record.leaving;
  }));
}

std::string Roster::missing() const {
  std::string names;
  for (int rank = 0; rank < places(); ++rank) {
    if (!holders_.contains(rank)) {
      names += fmt::format("{}{} {}", names.empty() ? "" : ", ", role_name(role_of_rank(rank)), rank);
    }
  }
  return names;
}

std::string Roster::missing_count() const {
  const int there = living(Role::worker) + living(Role::server);
  return fmt::format("{} of {} processes", std::max(0, places() - there), places());
}

std::vector<const Record*> Roster::members() const {
  std::vector<const Record*> members;
  for (const auto& [rank, id] : holders_) {
    if (const Record& record = records_.at(id); record.living()) {
      members.push_back(&record);
    }
  }
  return members;
}

}  // namespace distbelief
