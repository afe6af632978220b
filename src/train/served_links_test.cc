#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "train/test_served_job.h"

namespace distbelief {
namespace {

using Job = ServedTestJob;

/// Every acknowledged push is in every block once, whichever servers die one after the other while workers push.
void expect_no_push_lost(std::int64_t floats, int servers, const std::vector<int>& victims, unsigned seed) {
  constexpr int kWorkers = 3;
  const std::uint64_t pushes = (floats > 100'000 ? 60 : 300) / kSlowness;
  Job job(kWorkers, servers, floats, counting());
  {
    std::vector<std::jthread> workers;
    for (int worker = 0; worker < kWorkers; ++worker) {
      workers.emplace_back([&, worker] { push_ones(job, worker, pushes); });
    }
    std::mt19937 draw(seed);
    std::set<int> dead;
    for (const int victim : victims) {
      std::this_thread::sleep_for(std::chrono::microseconds(draw() % 20'000));
      job.kill_servers({victim});
      dead.insert(victim);
      ASSERT_TRUE(wait_until([&] {  // new copies are made
        for (int server = 0; server < servers; ++server) {
          if (!dead.contains(server) && !job.server(server).settled()) {
            return false;
          }
        }
        return true;
      }));
    }
  }
  const std::vector<float> values = fetched(job, 0);
  EXPECT_EQ(std::set<float>(values.begin(), values.end()), std::set<float>{-static_cast<float>(kWorkers * pushes)});
  int leader = 0;
  while (std::ranges::count(victims, leader) > 0) {
    ++leader;
  }
  EXPECT_TRUE(job.server(leader).leads());
  std::vector<std::uint64_t> heard = job.heard(leader);
  EXPECT_EQ(heard.size(), kWorkers * pushes);
  EXPECT_EQ(std::set<std::uint64_t>(heard.begin(), heard.end()).size(), heard.size());
}

TEST(ServedLinks, TwoServersThatBackEachOtherTakePushesOfSeveralWorkers) { expect_no_push_lost(20'000, 2, {}, 1); }

TEST(ServedLinks, ServersOfManyParametersAnswerOnThreadsOfTheirOwn) { expect_no_push_lost(400'000, 2, {}, 1); }

TEST(ServedLinks, NoAcknowledgedPushIsLostWithAServer) {
  for (unsigned seed = 0; seed < 4; ++seed) {
    expect_no_push_lost(20'000, 2, {1}, seed);
  }
}

TEST(ServedLinks, NoAcknowledgedPushIsLostWithTheLeader) {
  for (unsigned seed = 0; seed < 4; ++seed) {
    expect_no_push_lost(20'000, 2, {0}, seed);
    expect_no_push_lost(20'000, 3, {0}, seed);
  }
}

TEST(ServedLinks, NoAcknowledgedPushIsLostWithAServerOfManyParameters) { expect_no_push_lost(400'000, 2, {0}, 1); }

TEST(ServedLinks, ServersMayDieOneAfterTheOtherAsNewBackupsAreMade) {
  for (unsigned seed = 0; seed < 3; ++seed) {
    expect_no_push_lost(20'000, 4, {2, 0, 1}, seed);
  }
}

TEST(ServedLinks, WhenBothHoldersAreLostWhoAsksIsTold) {
  Job job(1, 3, 20'000, counting());
  push_ones(job, 0, 3);
  job.kill_servers({0, 1});
  ServerClient& client = job.links(0).worker();
  client.begin_fetch();
  EXPECT_FALSE(client.wait_fetched(soon()).ok());
}

TEST(ServedLinks, AFenceIsConfirmedWhenTheBackupHasItAndTellsWhatBothHave) {
  Job job(2, 2, 20'000, counting());
  push_ones(job, 0, 5);
  push_ones(job, 1, 7);
  job.lose_worker(1);
  for (int server = 0; server < 2; ++server) {
    ASSERT_TRUE(wait_until([&] { return job.fenced(server, 1).has_value(); }));
    std::map<std::uint64_t, std::uint64_t> open;
    const std::vector<PushId> told = *job.fenced(server, 1);
    for (const PushId& push : told) {
      open[push.lease] = push.seq;
    }
    EXPECT_EQ(open, (std::map<std::uint64_t, std::uint64_t>{{1, 5}, {2, 7}}));
  }
  job.kill_servers({0});
  const std::vector<float> ones(job.floats(), 1.0F);
  const std::span<const float> part = ones;
  ServerClient& fenced = job.links(1).worker();
  fenced.add({&part, 1});
  ASSERT_TRUE(fenced.push({.id = {2, 7}}, soon()).outcome.ok());
  EXPECT_EQ(fenced.wait_pushed(soon()).status, ReplyHead::Status::fenced);
  EXPECT_EQ(fetched(job, 0)[0], -12.0F);
}

TEST(ServedLinks, WhatTheLeaderKeptIsWithTheNextOne) {
  Job job(1, 2, 20'000, counting());
  job.server(0).keep_note("first");
  job.server(0).keep_beginning("", "second");
  EXPECT_FALSE(job.server(1).leads());
  job.kill_servers({0});
  ASSERT_TRUE(wait_until([&] { return job.server(1).leads(); }));
  EXPECT_EQ(job.server(1).note(), "second");
  job.server(1).begin_leading();
  EXPECT_EQ(job.server(1).leader().order(RequestHead::Kind::slow_down, 0.5F, soon()).status, ReplyHead::Status::done);
  push_ones(job, 0, 2);
  EXPECT_EQ(fetched(job, 0)[0], -1.0F);
  std::vector<std::string> states;
  EXPECT_TRUE(job.server(1).leader().save(states, soon()).outcome.ok());
  EXPECT_EQ(states.size(), 2U);
}

}  // namespace
}  // namespace distbelief
