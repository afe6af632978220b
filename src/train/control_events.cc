#include "train/control_events.h"

#include <fmt/format.h>

#include <algorithm>

#include "train/part_epochs.h"

namespace distbelief {
namespace {

/// A data plane sees a closed connection at once; what became of its process is known when it has not come back.
constexpr std::chrono::seconds kExplainPatience{3};

/// Why a view is without a member, without the name that such a reason begins with.
std::string end_without_name(const MemberInfo& member, const std::string& reason) {
  const std::string name = describe(member) + " ";
  return reason.starts_with(name) ? reason.substr(name.size()) : reason;
}

}  // namespace

void ControlEvents::operator()(const MemberEvent& event) {
  write_down(event);
  if (const auto* lost = std::get_if<MemberLost>(&event)) {
    const std::scoped_lock lock(mutex_);
    lost_.push_back({lost->member, lost->reason});
    tell_fabric();
    changed_.notify_all();
  } else if (const auto* view = std::get_if<View>(&event)) {
    const std::scoped_lock lock(mutex_);
    heard(*view);
    changed_.notify_all();
  } else if (const auto* servers = std::get_if<ServerHistory>(&event)) {
    const std::scoped_lock lock(mutex_);
    server_history_ = *servers;
    changed_.notify_all();
  } else if (const auto* order = std::get_if<Order>(&event)) {
    const bool leave = order->what == Order::What::leave;
    told_to_leave_ = told_to_leave_ || leave;
    leaves_ = leaves_ || (leave && bond_ == Bond::regroups);
    stop_ = stop_ || (order->what == Order::What::stop && !order->no_workers) || (leave && bond_ != Bond::regroups);
  } else if (const auto* gone = std::get_if<CoordinatorLost>(&event)) {
    comes_again_ = gone->comes_again;
    fenced_ = fenced_ || gone->fenced;
    end_all_waits("the coordinator is lost: " + gone->reason);
  } else if (const auto* ended = std::get_if<JobEnded>(&event)) {
    end_all_waits("the job has ended without this process: " + ended->reason);
  }
}

void ControlEvents::heard(const View& view) {
  const View* const before = views_.empty() ? nullptr : &views_.rbegin()->second;
  if (before != nullptr) {  // who failed and left is not there any more either, and nobody else tells of it
    for (const MemberInfo& member : before->members) {
      const bool known = std::ranges::any_of(lost_, [&](const Loss& loss) { return loss.member.id == member.id; });
      if (!known && std::ranges::find(view.failed, member.id) != view.failed.end() && bond_ == Bond::regroups) {
        lost_.push_back({member, end_without_name(member, view.reason)});
      }
    }
  }
  if (view.number > 1 && !view.peaceful && bond_ == Bond::all_or_none) {
    changed_view_ = view.reason;
  }
  if (views_.empty()) {
    formed_ = view.number - (late_ ? 1 : 0);  // those who begin the job together
  }
  views_[view.number] = view;
  hear_of_leaving();
  end_views();
  tell_fabric();
  if (bond_ == Bond::each_link) {
    lose_those_that_left(view);
  }
}

void ControlEvents::end_views() {
  if (bond_ != Bond::regroups) {
    return;
  }
  const View& last = views_.rbegin()->second;
  for (const auto& [number, view] : views_) {
    const bool lacks = std::ranges::any_of(view.members, [&, number = number](const MemberInfo& member) {
      return std::ranges::find(last.failed, member.id) != last.failed.end() ||
             (number > formed_ && last.find(member.rank) == nullptr);
    });
    if (lacks) {
      over_.insert(number);
    }
  }
}

std::optional<View> ControlEvents::next_view(std::uint64_t number, Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  const auto find = [&] {
    return std::find_if(views_.upper_bound(number), views_.end(),
                        [&](const auto& entry) { return !over_.contains(entry.first) && entry.second.awaited == 0; });
  };
  changed_.wait_until(lock, deadline, [&] { return find() != views_.end() || coordinator_gone_; });
  if (coordinator_gone_ || find() == views_.end()) {
    return std::nullopt;
  }
  return find()->second;
}

std::uint64_t ControlEvents::newest_with_changes() {
  const std::scoped_lock lock(mutex_);
  const auto formed = views_.find(formed_);
  for (auto view = views_.rbegin(); formed != views_.end() && view != views_.rend() && view->first > formed_; ++view) {
    if (has_changes(view->second, formed->second) && view->second.awaited == 0 && !over_.contains(view->first)) {
      return view->first;
    }
  }
  return formed_;
}

bool ControlEvents::has_changes(const View& view, const View& formed) {
  const bool has_newcomers =
      std::ranges::any_of(view.members, [&](const MemberInfo& member) { return formed.find(member.rank) == nullptr; });
  const bool has_leavers = std::ranges::any_of(
      view.leaving, [&](Rank rank) { return std::ranges::find(formed.leaving, rank) == formed.leaving.end(); });
  const bool shrinks = view.most_workers > 0 && (formed.most_workers == 0 || view.most_workers < formed.most_workers);
  return has_newcomers || has_leavers || shrinks;
}

void ControlEvents::hear_of_leaving() {
  if (parts_ > 1 && bond_ == Bond::regroups && fabric_ != nullptr && !views_.empty()) {
    const std::vector<Rank>& leaving = views_.rbegin()->second.leaving;
    leaves_ = std::ranges::find(leaving, fabric_->rank()) != leaving.end();
  }
}

std::optional<View> ControlEvents::view(std::uint64_t number) {
  const std::scoped_lock lock(mutex_);
  const auto found = views_.find(number);
  return found == views_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<View> ControlEvents::first_view(Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  const bool heard = changed_.wait_until(lock, deadline, [&] { return !views_.empty(); });
  return heard ? std::optional(views_.begin()->second) : std::nullopt;
}

std::optional<MemberInfo> ControlEvents::find(Rank rank) {
  const std::scoped_lock lock(mutex_);
  for (auto view = views_.rbegin(); view != views_.rend(); ++view) {
    if (const MemberInfo* member = view->second.find(rank)) {
      return *member;
    }
  }
  return std::nullopt;
}

bool ControlEvents::is_gone(Rank rank) {
  const std::scoped_lock lock(mutex_);
  return coordinator_gone_ || views_.empty() || views_.rbegin()->second.find(rank) == nullptr;
}

std::vector<ServerHistory::Event> ControlEvents::server_events(std::size_t from) {
  const std::scoped_lock lock(mutex_);
  const std::vector<ServerHistory::Event>& all = server_history_.events;
  return {all.begin() + static_cast<std::ptrdiff_t>(std::min(from, all.size())), all.end()};
}

ServerHistory ControlEvents::server_history() {
  const std::scoped_lock lock(mutex_);
  return server_history_;
}

std::vector<MemberInfo> ControlEvents::members_since(std::uint64_t& view) {
  const std::scoped_lock lock(mutex_);
  std::map<std::uint64_t, MemberInfo> members;  // by id
  for (auto at = views_.upper_bound(view); at != views_.end(); ++at) {
    for (const MemberInfo& member : at->second.members) {
      members.emplace(member.id, member);
    }
    view = at->first;
  }
  std::vector<MemberInfo> all;
  for (const auto& [id, member] : members) {
    all.push_back(member);
  }
  return all;
}

void ControlEvents::formed(std::uint64_t number) {
  const std::scoped_lock lock(mutex_);
  formed_ = number;
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
  hear_of_leaving();
  tell_fabric();
  if (fabric_ != nullptr && bond_ == Bond::each_link && !views_.empty()) {
    lose_those_that_left(views_.rbegin()->second);
  }
}

std::vector<ControlEvents::Loss> ControlEvents::lost() {
  const std::scoped_lock lock(mutex_);
  return lost_;
}

std::string ControlEvents::explain(const std::string& seen) {
  std::unique_lock lock(mutex_);
  const Clock::time_point now = Clock::now();
  changed_.wait_until(lock, now + kExplainPatience, [&] {
    const bool knows_it = !lost_.empty() && !is_another_accident(lost_.back().heard, now);
    return knows_it || !coordinator_lost_.empty();
  });
  const bool is_old = lost_.empty() || is_another_accident(lost_.back().heard, now);
  if (is_old && !coordinator_lost_.empty()) {  // deaths of before were survived
    return coordinator_lost_;
  }
  if (lost_.empty()) {
    return seen;
  }
  std::size_t culprit = 0;
  for (std::size_t i = 1; i < lost_.size(); ++i) {
    culprit = is_another_accident(lost_[i - 1].heard, lost_[i].heard) ? i : culprit;
  }
  return describe(lost_[culprit].member) + ": " + lost_[culprit].reason;
}

bool ControlEvents::first_alive(Rank self) {
  const std::scoped_lock lock(mutex_);
  for (int rank = 0; rank < self.value; ++rank) {
    const bool left = bond_ == Bond::regroups && !views_.empty() && views_.rbegin()->second.find(Rank{rank}) == nullptr;
    if (!left && std::ranges::none_of(lost_, [&](const Loss& loss) { return loss.member.rank == Rank{rank}; })) {
      return false;
    }
  }
  return self.value > 0;
}

bool ControlEvents::somebody_went() {
  const std::scoped_lock lock(mutex_);
  const auto formed = views_.find(formed_);
  return formed != views_.end() && std::ranges::any_of(views_.begin()->second.members, [&](const MemberInfo& member) {
           return formed->second.find(member.rank) == nullptr;
         });
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
  // MPI does not tell that a peer is gone. Servers look after each other by themselves, and must not take the end of
  // the one that leads for a loss.
  const View& first = views_.begin()->second;
  const MemberInfo* self = fabric_ == nullptr ? nullptr : first.find(fabric_->rank());
  if (self == nullptr || self->role != Role::worker) {
    return;
  }
  for (const MemberInfo& member : first.members) {
    const bool serves =
        member.role == Role::server ||
        std::ranges::any_of(server_history_.events, [&](const ServerHistory::Event& event) {
          return event.what == ServerHistory::What::began && event.rank == member.rank;  // inside a worker
        });
    const bool needed = serves || member.rank.value / parts_ == self->rank.value / parts_;
    if (needed && view.find(member.rank) == nullptr) {
      lose(member.rank, describe(member) + " is gone: " + view.reason);
    }
  }
}

void ControlEvents::tell_fabric() {
  if (fabric_ == nullptr) {
    return;
  }
  for (const Loss& loss : lost_) {
    lose(loss.member.rank, describe(loss.member) + ": " + loss.reason);
  }
  for (const std::uint64_t number : over_) {
    for (const std::uint32_t epoch : tag_epochs_of_view(static_cast<std::uint32_t>(number), parts_ > 1)) {
      fabric_->end_epoch(epoch, "is not waited for any more: " + views_.rbegin()->second.reason);
    }
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
