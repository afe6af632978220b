#pragma once

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "train/part_epochs.h"
#include "train/team.h"
#include "transport/fabric.h"

namespace distbelief {

/// A view for each death and each wish that others come or go, as a coordinator would issue it.
class TestViews {
 public:
  /// `standbys`: those with the next ranks wait, and each takes the place of one that dies.
  explicit TestViews(int members, int standbys = 0)
      : fabrics_(static_cast<std::size_t>(members + standbys)), next_standby_(members) {
    for (int rank = 0; rank < members; ++rank) {
      members_.insert(rank);
      formed_[rank] = 1;
    }
    views_[view_] = {.members = members_, .leaving = {}, .most_workers = 0};
  }

  void add(Fabric& fabric) {
    const std::scoped_lock lock(mutex_);
    fabrics_[static_cast<std::size_t>(fabric.rank().value)] = &fabric;
  }
  void formed(Rank rank, std::uint32_t epoch) {
    const std::scoped_lock lock(mutex_);
    formed_[rank.value] = epoch;
  }
  /// It has ended, and is not told of deaths any more. When it was done, groups that stand are not over.
  void remove(Rank rank) {
    const std::scoped_lock lock(mutex_);
    gone_.insert(rank.value);
    fabrics_[static_cast<std::size_t>(rank.value)] = nullptr;
    if (members_.erase(rank.value) > 0) {
      end_views_of_others([this](Rank other) { return formed_[other.value] + 1; });
    }
  }
  void die(Rank rank) {
    const std::scoped_lock lock(mutex_);
    members_.erase(rank.value);
    dead_.insert(rank.value);
    if (next_standby_ < static_cast<int>(fabrics_.size())) {
      members_.insert(next_standby_++);
    }
    for (Fabric* fabric : fabrics_) {
      if (fabric != nullptr && fabric->rank() != rank) {
        fabric->lose(rank, "died");
      }
    }
    end_views_of_others([](Rank /*other*/) { return 1U; });
  }
  /// So many standbys come, these leave, or at most so many workers shall go on, where the network is cut.
  struct Wish {
    int come = 0;
    std::set<int> leave = {};
    int most_workers = 0;
  };
  void wish(const Wish& wish) {
    const std::scoped_lock lock(mutex_);
    for (int i = 0; i < wish.come && next_standby_ < static_cast<int>(fabrics_.size()); ++i) {
      members_.insert(next_standby_++);
    }
    leaving_.insert(wish.leave.begin(), wish.leave.end());
    most_workers_ = wish.most_workers;
    issue();
  }
  /// The newest view in which others come or leave than in that of this member's group; or the latter.
  std::uint32_t newest(Rank self) {
    const std::scoped_lock lock(mutex_);
    const std::uint32_t formed = formed_[self.value];
    const TestView& before = views_[formed];
    const TestView& now = views_[view_];
    const bool grows = !std::ranges::includes(before.members, now.members);
    const bool shrinks = now.most_workers > 0 && before.most_workers == 0;
    return grows || shrinks || !std::ranges::includes(before.leaving, now.leaving) ? view_ : formed;
  }
  bool is_dead(Rank rank) {
    const std::scoped_lock lock(mutex_);
    return dead_.contains(rank.value);
  }
  bool is_gone(Rank rank) {
    const std::scoped_lock lock(mutex_);
    return gone_.contains(rank.value);
  }
  /// Of a standby: false when all have ended without need of it.
  bool is_called(Rank self) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::minutes(1),
                      [&] { return members_.empty() || members_.contains(self.value) || dead_.contains(self.value); });
    return members_.contains(self.value);
  }
  std::optional<NextTeam> next(Rank self, std::uint32_t epoch) {
    std::unique_lock lock(mutex_);
    const auto find = [&] {  // the first that it is in and whose members are all there
      return std::find_if(views_.upper_bound(epoch), views_.end(), [&](const auto& view) {
        return view.second.members.contains(self.value) && std::ranges::includes(members_, view.second.members);
      });
    };
    const bool came = changed_.wait_for(lock, std::chrono::seconds(30),
                                        [&] { return find() != views_.end() || dead_.contains(self.value); });
    if (!came || dead_.contains(self.value)) {
      return std::nullopt;
    }
    const auto& [number, view] = *find();
    NextTeam team = {.epoch = number, .members = {}, .leaving = {}, .most_workers = view.most_workers};
    for (const int rank : view.members) {
      team.members.push_back(Rank{rank});
      if (view.leaving.contains(rank)) {
        team.leaving.push_back(Rank{rank});
      }
    }
    return team;
  }

 private:
  /// Those from first_of(member) on are over for it.
  void end_views_of_others(const std::function<std::uint32_t(Rank)>& first_of) {
    for (Fabric* fabric : fabrics_) {
      if (fabric == nullptr || !members_.contains(fabric->rank().value)) {
        continue;
      }
      for (std::uint32_t view = first_of(fabric->rank()); view <= view_; ++view) {
        for (const std::uint32_t epoch : tag_epochs_of_view(view, true)) {
          fabric->end_epoch(epoch, "a member is gone");
        }
      }
    }
    issue();
  }
  void issue() {
    TestView view = {.members = members_, .leaving = {}, .most_workers = most_workers_};
    std::ranges::set_intersection(members_, leaving_, std::inserter(view.leaving, view.leaving.end()));
    views_[++view_] = view;
    changed_.notify_all();
  }

  struct TestView {
    std::set<int> members;
    std::set<int> leaving;
    int most_workers = 0;
  };

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Fabric*> fabrics_;
  std::set<int> members_;
  int next_standby_;
  std::set<int> dead_;
  std::set<int> gone_;                   // who ended
  std::map<int, std::uint32_t> formed_;  // by rank
  std::uint32_t view_ = 1;
  std::map<std::uint32_t, TestView> views_;  // by number
  std::set<int> leaving_;                    // also those who have left
  int most_workers_ = 0;
};

/// Dies when its `last`-th message is posted: nothing of it goes out or comes in any more. `posting` is told the number
/// of each message before.
class DyingFabric : public Fabric {
 public:
  DyingFabric(std::unique_ptr<Fabric> fabric, TestViews& views, int last, std::function<void(int)> posting = {})
      : fabric_(std::move(fabric)), views_(views), last_(last), posting_(std::move(posting)) {}
  Rank rank() const override { return fabric_->rank(); }
  int size() const override { return fabric_->size(); }
  Outcome wait(Transfer& transfer, Clock::time_point deadline) override { return fabric_->wait(transfer, deadline); }
  bool progress(Transfer& transfer) override { return fabric_->progress(transfer); }
  void cancel(Transfer& transfer) override { fabric_->cancel(transfer); }
  void lose(Rank peer, const std::string& reason) override { fabric_->lose(peer, reason); }
  void end_epoch(std::uint32_t epoch, const std::string& reason) override { fabric_->end_epoch(epoch, reason); }
  int posts() const { return posts_; }

 protected:
  void post(Transfer& transfer) override {
    if (posting_) {
      posting_(posts_ + 1);
    }
    if (++posts_ == last_) {
      for (int peer = 0; peer < size(); ++peer) {
        if (Rank{peer} != rank()) {
          fabric_->lose(Rank{peer}, "this process died");
        }
      }
      views_.die(rank());
    }
    post_to(*fabric_, transfer);
  }

 private:
  const std::unique_ptr<Fabric> fabric_;
  TestViews& views_;
  const int last_;
  const std::function<void(int)> posting_;
  int posts_ = 0;
};

/// What a member that is dead finds out.
struct Died {};

}  // namespace distbelief
