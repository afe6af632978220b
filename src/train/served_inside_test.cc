// Servers inside workers: a process that dies takes a worker, the primaries of some shelves and the backups of others
// along.
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "train/test_served_job.h"

namespace distbelief {
namespace {

/// Pushes units of ones of a lease, from the first to the last, and fetches now and then. How many were acknowledged:
/// all, unless the process is killed.
std::uint64_t push_lease(ServedTestJob& job, int worker, std::uint64_t lease, std::uint64_t first, std::uint64_t last) {
  ServerClient& client = job.links(worker).worker();
  const std::vector<float> ones(job.floats(), 1.0F);
  std::vector<float> values(job.floats());
  const std::span<const float> part = ones;
  for (std::uint64_t seq = first; seq < last; ++seq) {
    if (seq % 3 == 0) {
      client.begin_fetch();
    }
    client.add({&part, 1});
    const bool sent = client.push({.id = {lease, seq}, .wants_values = seq % 2 == 0}, soon()).outcome.ok();
    if (!sent || !client.wait_pushed(soon()).outcome.ok()) {
      return seq;
    }
    if (client.fetching()) {
      if (!client.wait_fetched(soon()).ok()) {
        return seq + 1;
      }
      client.take(values);
    }
  }
  return last;
}

/// What is to be done again of the lease of a worker that is lost: of all that the others have told, the least.
std::uint64_t next_of_lease(ServedTestJob& job, const std::set<int>& living, int lost) {
  std::uint64_t next = ~std::uint64_t{0};
  for (const int process : living) {
    EXPECT_TRUE(wait_until([&] { return job.fenced(process, lost).has_value(); }));
    std::uint64_t told = 0;
    const std::vector<PushId> leases = job.fenced(process, lost).value_or(std::vector<PushId>());
    for (const PushId& open : leases) {
      told = open.lease == static_cast<std::uint64_t>(lost + 1) ? open.seq : told;
    }
    next = std::min(next, told);
  }
  return next;
}

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
