#include "train/control_events.h"

#include <fmt/format.h>

#include <algorithm>

namespace distbelief {
namespace {

/// A data plane sees a closed connection at once; what became of its process is known when it has not come back.
constexpr std::chrono::seconds kExplainPatience{3};

}  // namespace

void ControlEvents::operator()(const MemberEvent& event) {
  write_down(event);
  if (const auto* lost = std::get_if<MemberLost>(&event)) {
    const std::scoped_lock lock(mutex_);
    lost_.emplace_back(lost->member.rank, describe(lost->member) + ": " + lost->reason);
    tell_fabric();
    changed_.notify_all();
  } else if (const auto* view = std::get_if<View>(&event);
             view != nullptr && view->number > 1 && !view->peaceful && bond_ == Bond::all_or_none) {
    // Who failed and left is not there any more either.
    const std::scoped_lock lock(mutex_);
    changed_view_ = view->reason;
    tell_fabric();
  } else if (const auto* changed = std::get_if<View>(&event); changed != nullptr && bond_ == Bond::each_link) {
    const std::scoped_lock lock(mutex_);
    lose_those_that_left(*changed);
  } else if (const auto* order = std::get_if<Order>(&event)) {
    stop_ = stop_ || (order->what == Order::What::stop && !order->no_workers) || order->what == Order::What::leave;
  } else if (const auto* gone = std::get_if<CoordinatorLost>(&event)) {
    end_all_waits("the coordinator is lost: " + gone->reason);
  } else if (const auto* ended = std::get_if<JobEnded>(&event)) {
    end_all_waits("the job has ended without this process: " + ended->reason);
  }
}

void ControlEvents::end_all_waits(const std::string& reason) {
  if (const ProcessLog* log = log_; log != nullptr) {
    log->line(reason);
  }
  const std::scoped_lock lock(mutex_);
  coordinator_lost_ = reason;
  coordinator_gone_ = true;
  tell_fabric();
  changed_.notify_all();
}

void ControlEvents::set_fabric(Fabric* fabric) {
  const std::scoped_lock lock(mutex_);
  fabric_ = fabric;
  tell_fabric();
  if (fabric_ != nullptr && bond_ == Bond::each_link && last_view_.number > 0) {
    lose_those_that_left(last_view_);
  }
}

std::vector<Rank> ControlEvents::lost() {
  const std::scoped_lock lock(mutex_);
  std::vector<Rank> ranks;
  for (const auto& [rank, reason] : lost_) {
    ranks.push_back(rank);
  }
  return ranks;
}

std::string ControlEvents::explain(const std::string& seen) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, Clock::now() + kExplainPatience,
                      [&] { return !lost_.empty() || !coordinator_lost_.empty(); });
  return lost_.empty() ? seen : lost_.front().second;
}

bool ControlEvents::first_alive(int position) {
  const std::scoped_lock lock(mutex_);
  for (int rank = 0; rank < position; ++rank) {
    if (std::ranges::none_of(lost_, [&](const auto& lost) { return lost.first == Rank{rank}; })) {
      return false;
    }
  }
  return position > 0;
}

void ControlEvents::write_down(const MemberEvent& event) const {
  const ProcessLog* log = log_;
  if (log == nullptr) {
    return;
  }
  if (const auto* lost = std::get_if<MemberLost>(&event)) {
    log->line(fmt::format("heard: {} is lost: {}", describe(lost->member), lost->reason));
  } else if (const auto* view = std::get_if<View>(&event)) {
    log->line(fmt::format("heard: view {} with {} members: {}", view->number, view->members.size(), view->reason));
  } else if (const auto* order = std::get_if<Order>(&event)) {
    log->line(fmt::format("heard: order to {}: {}",
                          order->what == Order::What::stop    ? "stop"
                          : order->what == Order::What::leave ? "leave"
                                                              : "write a checkpoint",
                          order->reason));
  }
}

void ControlEvents::lose_those_that_left(const View& view) {
  last_view_ = view;
  if (first_view_.members.empty()) {
    first_view_ = view;
    return;
  }
  // MPI does not tell that a peer is gone. Servers look after each other by themselves, and must not take the end of
  // the one that leads for a loss.
  const MemberInfo* self = fabric_ == nullptr ? nullptr : first_view_.find(fabric_->rank());
  if (self == nullptr || self->role != Role::worker) {
    return;
  }
  for (const MemberInfo& member : first_view_.members) {
    const bool needed = member.role == Role::server || member.rank.value / parts_ == self->rank.value / parts_;
    if (needed && view.find(member.rank) == nullptr) {
      lose(member.rank, describe(member) + " is gone: " + view.reason);
    }
  }
}

void ControlEvents::tell_fabric() {
  if (fabric_ == nullptr) {
    return;
  }
  for (const auto& [rank, reason] : lost_) {
    lose(rank, reason);
  }
  // A group without one of its members cannot go on, and whoever waits for a living one may wait in vain. Without a
  // coordinator nobody can tell who is alive.
  std::string reason = changed_view_;
  if (!coordinator_lost_.empty()) {
    reason = coordinator_lost_;
  }
  for (int rank = 0; !reason.empty() && rank < fabric_->size(); ++rank) {
    lose(Rank{rank}, "is not waited for any more: " + reason);
  }
}

void ControlEvents::lose(Rank rank, const std::string& reason) {
  if (rank != fabric_->rank() && rank.value >= 0 && rank.value < fabric_->size()) {
    fabric_->lose(rank, reason);
  }
}

}  // namespace distbelief
