#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "server/ownership.h"

namespace distbelief {

/// Which server holds which shelf now, as far as the control plane has told this process. Thread-safe.
class ServedRoutes {
 public:
  struct Events {
    /// Numbers of servers that are dead, in the order in which the coordinator told.
    std::function<std::vector<int>()> lost = {};
    /// Whether a server is not in the newest view, dead or not; or nobody can tell any more who is.
    std::function<bool(int server)> is_gone = {};
  };
  /// `hosts` are those of the servers at the start.
  ServedRoutes(const std::vector<std::string>& hosts, Events events)
      : events_(std::move(events)), first_(hosts, 2), table_(first_) {}

  /// Before anybody was lost.
  const Ownership& first() const { return first_; }
  Ownership now() const {
    const std::vector<int> lost = events_.lost();
    const std::scoped_lock lock(mutex_);
    for (const int server : lost) {
      table_.lose(server);
    }
    return table_;
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
  const Events events_;
  const Ownership first_;
  mutable std::mutex mutex_;
  mutable Ownership table_;  // guarded by mutex_
};

}  // namespace distbelief
