// Workers with a server inside that come and go while all of them push: each is a client of the others at any time, and
// holds parameters from when it is ready until others have what it held.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <thread>

#include "train/test_served_changes.h"

namespace distbelief {
namespace {

/// Such processes, each with a thread that pushes units of a lease of its own from when it comes until it goes.
class InsideTeam {
 public:
  InsideTeam(const ServedTestJob::Options& options, unsigned seed)
      : job_(options, counting()), leaders_(job_), draw_(seed) {
    for (int worker = 0; worker < options.workers; ++worker) {
      begin(worker);
    }
    leaders_.look_after({0});
  }
  ~InsideTeam() {
    for (const auto& [worker, pusher] : pushers_) {
      pusher->stop = true;
    }
  }

  int come() {
    const int newcomer = job_.add_server();
    begin(newcomer);
    return newcomer;
  }
  /// It pushes until it holds nothing any more.
  void leave(int worker) {
    job_.ask_to_leave(worker);
    ASSERT_TRUE(wait_until([&] {
      leaders_.look_after(here());
      return job_.server(worker).may_leave();
    }));
    stop_pushing(worker);
    job_.end_worker(worker);
    gone_.insert(worker);
  }
  void ask_to_leave(int worker) { job_.ask_to_leave(worker); }
  /// `meanwhile`: before anybody hears of it.
  void kill(
      int worker, const std::function<void()>& meanwhile = [] {}) {
    Pusher& pusher = *pushers_.at(worker);
    job_.kill_servers({worker}, [&] {
      pusher.thread.join();
      meanwhile();
    });
    gone_.insert(worker);
    const std::vector<int> all = here();
    left_to_do_[worker] = next_of_lease(job_, {all.begin(), all.end()}, worker);  // who leaves later has its say, too
  }
  void nap() { distbelief::nap(draw_); }
  int draw(int below) { return static_cast<int>(draw_() % static_cast<unsigned>(below)); }
  /// Numbers of those that are there.
  std::vector<int> here() const {
    std::vector<int> all;
    for (const auto& [worker, pusher] : pushers_) {
      if (!gone_.contains(worker)) {
        all.push_back(worker);
      }
    }
    return all;
  }
  [[nodiscard]] bool settles() {
    const std::vector<int> all = here();
    const bool settled = wait_until([&] {
      leaders_.look_after(all);
      return std::ranges::all_of(
          all, [&](int worker) { return job_.table().lives(worker) && job_.server(worker).settled(); });
    });
    return settled || wait_until_settled(job_, all);  // which says what is not
  }
  int shelves_with(int worker) { return distbelief::shelves_with(job_.table(), worker); }

  /// All stop, and others make what is left of the leases of the dead: every push of every lease is in every block
  /// once, and in the books of who leads once.
  void expect_each_push_once() {
    std::uint64_t pushes = 0;
    for (const int worker : here()) {
      stop_pushing(worker);
    }
    const int first = here().front();
    for (const auto& [lost, next] : left_to_do_) {
      constexpr std::uint64_t kMore = 3;
      const std::uint64_t last = std::max(next, pushers_.at(lost)->pushed) + kMore;
      EXPECT_EQ(push_lease(job_, first, lease_of(lost), next, last), last);
      pushers_.at(lost)->pushed = last;
    }
    ServerClient& client = job_.links(first).worker();
    const std::vector<float> ones(job_.floats(), 1.0F);  // so that everything is newer than what the client has
    const std::span<const float> part = ones;
    client.add({&part, 1});
    EXPECT_TRUE(client.push({.id = {lease_of(first), pushers_.at(first)->pushed++}}, soon()).outcome.ok());
    EXPECT_TRUE(client.wait_pushed(soon()).outcome.ok());
    for (const auto& [worker, pusher] : pushers_) {
      pushes += pusher->pushed;
    }
    const std::vector<float> values = fetched(job_, first);
    EXPECT_EQ(std::set<float>(values.begin(), values.end()), std::set<float>{-static_cast<float>(pushes)});
    const std::vector<std::uint64_t>& heard = job_.heard(job_.table().leader());
    EXPECT_EQ(heard.size(), pushes);
    EXPECT_EQ(std::set<std::uint64_t>(heard.begin(), heard.end()).size(), heard.size());
  }

 private:
  struct Pusher {
    std::atomic<bool> stop = false;
    std::uint64_t pushed = 0;  ///< acknowledged; of its thread, while that runs
    std::jthread thread;
  };
  static std::uint64_t lease_of(int worker) { return static_cast<std::uint64_t>(worker + 1); }

  void begin(int worker) {
    Pusher& pusher = *pushers_.emplace(worker, std::make_unique<Pusher>()).first->second;
    pusher.thread = std::jthread([this, worker, &pusher] {
      bool lives = true;
      while (lives && !pusher.stop) {
        const std::uint64_t next = push_lease(job_, worker, lease_of(worker), pusher.pushed, pusher.pushed + 1);
        lives = next > pusher.pushed;
        pusher.pushed = next;
      }
    });
  }
  void stop_pushing(int worker) {
    Pusher& pusher = *pushers_.at(worker);
    pusher.stop = true;
    if (pusher.thread.joinable()) {
      pusher.thread.join();
    }
  }

  ServedTestJob job_;
  TestLeaders leaders_;
  std::mt19937 draw_;
  std::set<int> gone_;
  std::map<int, std::uint64_t> left_to_do_;         ///< of the leases of the dead, from where on
  std::map<int, std::unique_ptr<Pusher>> pushers_;  // last: they push until they are destroyed
};

TEST(ServedInsideMoves, OneWorkerBecomesThreeAndTwo) {
  for (const std::int64_t floats : {100'000, 1'000'000}) {
    InsideTeam team({.workers = 1, .floats = floats, .newcomers = 2, .inside = true}, 1);
    team.nap();
    EXPECT_EQ(team.come(), 1);
    team.nap();
    EXPECT_EQ(team.come(), 2);
    ASSERT_TRUE(team.settles());
    for (const int worker : {0, 1, 2}) {
      EXPECT_EQ(team.shelves_with(worker), 4);
    }
    team.nap();
    team.leave(1);
    ASSERT_TRUE(team.settles());
    EXPECT_EQ(team.shelves_with(0), 6);
    EXPECT_EQ(team.shelves_with(2), 6);
    team.expect_each_push_once();
  }
}

TEST(ServedInsideMoves, WhoLeadsMayLeaveUntilANewcomerIsLeft) {
  for (unsigned seed = 0; seed < tries(4U); ++seed) {
    InsideTeam team({.workers = 2, .floats = 100'000, .newcomers = 1, .inside = true}, seed);
    const int newcomer = team.come();
    team.nap();
    team.leave(0);
    team.nap();
    team.leave(1);
    ASSERT_TRUE(team.settles());
    EXPECT_EQ(team.here(), std::vector<int>{newcomer});
    EXPECT_EQ(team.shelves_with(newcomer), 12);
    team.expect_each_push_once();
  }
}

TEST(ServedInsideMoves, ANewcomerMayDieInTheMiddleOfItsJoining) {
  for (unsigned seed = 0; seed < tries(4U); ++seed) {
    InsideTeam team({.workers = 2, .floats = 200'000, .newcomers = 2, .inside = true}, seed);
    const int first = team.come();
    team.nap();
    team.kill(first);
    team.nap();
    const int second = team.come();
    ASSERT_TRUE(team.settles());
    EXPECT_EQ(team.shelves_with(second), 4);
    team.expect_each_push_once();
  }
}

TEST(ServedInsideMoves, WhoeverDiesWhileOneLeavesIsADeathAndNoMore) {
  for (unsigned seed = 0; seed < tries(6U); ++seed) {
    InsideTeam team({.workers = 3, .floats = 200'000, .newcomers = 1, .inside = true}, seed);
    const int victim = team.draw(3);  // who leaves, who leads, or the third
    team.ask_to_leave(1);
    team.nap();
    team.kill(victim);
    if (victim == 1) {
      ASSERT_TRUE(team.settles());
    } else {
      team.leave(1);
    }
    ASSERT_TRUE(team.settles());
    team.expect_each_push_once();
  }
}

TEST(ServedInsideMoves, OneThatIsToLeaveStaysAndGoesOnWhenTheOtherDies) {
  for (unsigned seed = 0; seed < tries(4U); ++seed) {
    InsideTeam team({.workers = 2, .floats = 200'000, .newcomers = 1, .inside = true}, seed);
    team.nap();
    team.kill(0, [&] {
      team.ask_to_leave(1);
      team.nap();
    });
    ASSERT_TRUE(team.settles());
    EXPECT_EQ(team.shelves_with(1), 12);
    team.expect_each_push_once();
  }
}

}  // namespace
}  // namespace distbelief
