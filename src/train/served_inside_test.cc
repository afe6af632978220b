// Servers inside workers: a process that dies takes a worker, the primaries of some shelves and the backups of others
// along.
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "train/test_served_changes.h"

namespace distbelief {
namespace {

/// Whichever processes are killed one after the other while all push: what they were acknowledged is in every block
/// once, and what others do again of their leases too.
void expect_each_push_once(std::int64_t floats, int workers, const std::vector<int>& victims, unsigned seed) {
  const std::uint64_t pushes = (floats > 100'000 ? 60 : 300) / kSlowness;
  ServedTestJob job({.workers = workers, .floats = floats, .inside = true}, counting());
  std::set<int> living;
  std::map<int, std::uint64_t> left_to_do;  // of the dead's leases, from where on
  {
    std::vector<std::uint64_t> acknowledged(static_cast<std::size_t>(workers));
    std::vector<std::jthread> threads;
    for (int worker = 0; worker < workers; ++worker) {
      living.insert(worker);
      threads.emplace_back([&, worker] {
        acknowledged[static_cast<std::size_t>(worker)] =
            push_lease(job, worker, static_cast<std::uint64_t>(worker + 1), 0, pushes);
      });
    }
    std::mt19937 draw(seed);
    for (const int victim : victims) {
      nap(draw);
      job.kill_servers({victim}, [&] { threads[static_cast<std::size_t>(victim)].join(); });
      living.erase(victim);
      left_to_do[victim] = next_of_lease(job, living, victim);
      EXPECT_GE(left_to_do[victim], acknowledged[static_cast<std::size_t>(victim)]);
      ASSERT_TRUE(wait_until([&] {  // new copies are made
        return std::ranges::all_of(living, [&](int process) { return job.server(process).settled(); });
      }));
    }
    threads.clear();
    for (const int worker : living) {
      EXPECT_EQ(acknowledged[static_cast<std::size_t>(worker)], pushes);
    }
  }
  const int first = *living.begin();
  for (const auto& [lost, next] : left_to_do) {
    EXPECT_EQ(push_lease(job, first, static_cast<std::uint64_t>(lost + 1), next, pushes), pushes);
  }
  const std::vector<float> values = fetched(job, first);
  EXPECT_EQ(std::set<float>(values.begin(), values.end()), std::set<float>{-static_cast<float>(workers * pushes)});
  const std::vector<std::uint64_t>& heard = job.heard(job.table(first).leader());
  EXPECT_EQ(heard.size(), workers * pushes);
  EXPECT_EQ(std::set<std::uint64_t>(heard.begin(), heard.end()).size(), heard.size());
}

TEST(ServedInside, WorkersThatBackEachOtherTakePushesOfAll) {
  expect_each_push_once(20'000, 3, {}, 1);
  expect_each_push_once(400'000, 2, {}, 1);
}

TEST(ServedInside, NoAcknowledgedPushIsLostWithAWorker) {
  for (unsigned seed = 0; seed < 4; ++seed) {
    expect_each_push_once(20'000, 3, {1}, seed);
    expect_each_push_once(20'000, 2, {1}, seed);
  }
}

TEST(ServedInside, NoAcknowledgedPushIsLostWithTheOneThatLeads) {
  for (unsigned seed = 0; seed < 4; ++seed) {
    expect_each_push_once(20'000, 3, {0}, seed);
    expect_each_push_once(20'000, 2, {0}, seed);
  }
}

TEST(ServedInside, NoAcknowledgedPushIsLostWithAWorkerOfManyParameters) {
  expect_each_push_once(400'000, 3, {2}, 1);
  expect_each_push_once(400'000, 3, {0}, 2);
}

TEST(ServedInside, WorkersMayDieOneAfterTheOtherUntilOneIsLeft) {
  for (unsigned seed = 0; seed < 3; ++seed) {
    expect_each_push_once(20'000, 4, {2, 0, 1}, seed);
    expect_each_push_once(20'000, 4, {0, 1, 2}, seed);
  }
}

TEST(ServedInside, OrdersOfTheLeaderAndPushesOfTheWorkerBesideItAreToldApart) {
  ServedTestJob job({.workers = 2, .inside = true}, counting());
  EXPECT_EQ(push_lease(job, 0, 1, 0, 5), 5U);  // both have counted as far as that
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(job.links(0).leader().order(RequestHead::Kind::slow_down, 0.5F, soon()).status, ReplyHead::Status::done);
  }
  EXPECT_EQ(push_lease(job, 0, 1, 5, 6), 6U);
  EXPECT_EQ(fetched(job, 0)[0], -5.0F - 1.0F / 256);
}

TEST(ServedInside, WhenBothHoldersAreLostWhoAsksIsTold) {
  ServedTestJob job({.workers = 3, .inside = true}, counting());
  EXPECT_EQ(push_lease(job, 2, 3, 0, 3), 3U);
  job.kill_servers({0, 1});
  EXPECT_EQ(push_lease(job, 2, 3, 3, 4), 3U);
}

}  // namespace
}  // namespace distbelief
