#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cluster/membership.h"
#include "server/ownership.h"

namespace distbelief {

/// Which server holds which shelf now, as far as the control plane has told this process. Servers are known by number:
/// their rank, less that of the first. Thread-safe.
class ServedRoutes {
 public:
  struct Events {
    /// What became of servers, without the first so many events.
    std::function<std::vector<ServerHistory::Event>(std::size_t from)> since = {};
    /// Whether a server is not in the newest view, dead or not; or nobody can tell any more who is.
    std::function<bool(int server)> is_gone = {};
  };
  /// `hosts` are those of the servers at the start, of which the first has this rank. `copies`: see Ownership.
  ServedRoutes(std::vector<std::string> hosts, int copies, Rank first, Events events)
      : hosts_(std::move(hosts)),
        copies_(copies),
        first_rank_(first),
        events_(std::move(events)),
        table_(hosts_, copies_, static_cast<int>(hosts_.size())) {}

  /// Before anything is held: there are so many shelves, and not one for each server of the start.
  void cut(int shelves) {
    const std::scoped_lock lock(mutex_);
    table_ = Ownership(hosts_, copies_, shelves);
    seen_ = 0;
  }
  /// Before anything became of anybody.
  Ownership first() const {
    const std::scoped_lock lock(mutex_);
    return {hosts_, copies_, table_.shelves()};
  }
  Ownership now() const {
    const std::scoped_lock lock(mutex_);
    for (const ServerHistory::Event& event : events_.since(seen_)) {
      ++seen_;
      take_in(event, table_);
    }
    return table_;
  }
  /// What follows from the table in which the first so many events are, one event after the other.
  std::vector<Ownership> since(Ownership table, std::size_t& seen) const {
    std::vector<Ownership> tables;
    for (const ServerHistory::Event& event : events_.since(seen)) {
      ++seen;
      take_in(event, table);
      tables.push_back(table);
    }
    return tables;
  }
  /// Who answers for the shelf. Nothing: all its holders are lost, or its primary has left on its own.
  std::optional<int> holder(int shelf) const {
    const int primary = now().of(shelf).primary;
    // Who is lost is told of before it leaves the view.
    if (primary == Ownership::kNobody || (events_.is_gone(primary) && now().of(shelf).primary == primary)) {
      return std::nullopt;
    }
    return primary;
  }
  std::optional<int> leader() const { return holder(0); }

 private:
  int number_of(Rank rank) const { return rank.value < 0 ? Ownership::kNobody : rank.value - first_rank_.value; }
  void take_in(const ServerHistory::Event& event, Ownership& table) const {
    using What = ServerHistory::What;
    switch (event.what) {
      case What::began:
        return;
      case What::lost:
        return table.lose(number_of(event.rank));
      case What::joined:
        return table.join(number_of(event.rank), event.host);
      case What::leaves:
        return table.leave(number_of(event.rank));
      case What::moved:
        if (event.shelf >= 0 && event.shelf < table.shelves()) {
          table.move(event.shelf, number_of(event.rank), number_of(event.backup));
        }
        return;
    }
  }

  const std::vector<std::string> hosts_;
  const int copies_;
  const Rank first_rank_;
  const Events events_;
  mutable std::mutex mutex_;
  mutable Ownership table_;       // guarded by mutex_, as the next
  mutable std::size_t seen_ = 0;  ///< events
};

}  // namespace distbelief
