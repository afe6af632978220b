#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <set>
#include <thread>

#include "params/lbfgs/vector_space.h"
#include "train/test_served_changes.h"

namespace distbelief {
namespace {

using Job = ServedTestJob;

/// Every acknowledged push is in every block once while servers come and go. `change` is told the job, and draws.
void expect_no_push_lost_while(const Job::Options& options, std::uint64_t least_pushes, unsigned seed,
                               const std::function<void(Job&, std::mt19937&)>& change) {
  Job job(options, counting());
  std::atomic<bool> done = false;
  std::vector<std::uint64_t> pushed(static_cast<std::size_t>(options.workers));
  {
    std::vector<std::jthread> workers;
    for (int worker = 0; worker < options.workers; ++worker) {
      workers.emplace_back([&, worker] {
        std::uint64_t pushes = 0;
        while ((!done || pushes < least_pushes / kSlowness) && !testing::Test::HasFailure()) {
          push_ones(job, worker, 10, pushes);
          pushes += 10;
        }
        pushed[static_cast<std::size_t>(worker)] = pushes;
      });
    }
    std::mt19937 draw(seed);
    change(job, draw);
    done = true;
  }
  const std::vector<float> ones(job.floats(), 1.0F);
  const std::span<const float> gradient = ones;
  std::vector<std::uint64_t> of_part;
  for (int part = 0; part < options.parts; ++part) {
    ServerClient& client = job.links(part).worker();
    std::uint64_t& last = pushed[static_cast<std::size_t>(part)];
    client.add({&gradient, 1});  // so that everything is newer than what the worker has
    ASSERT_TRUE(client.push({.id = {static_cast<std::uint64_t>(part + 1), last++}}, soon()).outcome.ok());
    ASSERT_TRUE(client.wait_pushed(soon()).outcome.ok());
    of_part.push_back(0);
    for (int worker = part; worker < options.workers; worker += options.parts) {
      of_part.back() += pushed[static_cast<std::size_t>(worker)];
    }
    const std::vector<float> values = fetched(job, part);
    EXPECT_EQ(std::set<float>(values.begin(), values.end()), std::set<float>{-static_cast<float>(of_part.back())});
  }
  std::vector<std::uint64_t> heard = job.heard(job.table().leader());  // from the first part
  EXPECT_EQ(heard.size(), of_part.front());
  EXPECT_EQ(std::set<std::uint64_t>(heard.begin(), heard.end()).size(), heard.size());
}

void one_becomes_three(Job& job, std::mt19937& draw) {
  nap(draw);
  EXPECT_EQ(job.add_server(), 1);
  nap(draw);
  EXPECT_EQ(job.add_server(), 2);
  ASSERT_TRUE(wait_until_settled(job, {0, 1, 2}));
}

TEST(ServedMoves, OneServerBecomesThreeAndTwo) {
  for (const std::int64_t floats : {100'000, 1'000'000}) {
    for (const int copies : {1, 2}) {
      expect_no_push_lost_while({.servers = 1, .floats = floats, .copies = copies, .newcomers = 2}, 40, 1,
                                [&](Job& job, std::mt19937& draw) {
                                  ASSERT_NO_FATAL_FAILURE(one_becomes_three(job, draw));
                                  for (int server = 0; server < 3; ++server) {
                                    EXPECT_EQ(shelves_with(job.table(), server), 4);
                                  }
                                  nap(draw);
                                  job.ask_to_leave(1);
                                  ASSERT_TRUE(wait_until([&] { return job.server(1).may_leave(); }));
                                  job.end_server(1);
                                  ASSERT_TRUE(wait_until_settled(job, {0, 2}));
                                  EXPECT_EQ(shelves_with(job.table(), 0), 6);
                                  EXPECT_EQ(shelves_with(job.table(), 2), 6);
                                });
    }
  }
}

TEST(ServedMoves, OfANetworkInPartsOneServerBecomesThreeAndTwo) {
  for (const int copies : {1, 2}) {
    expect_no_push_lost_while(
        {.workers = 4, .servers = 1, .floats = 100'000, .copies = copies, .newcomers = 2, .parts = 4}, 40, 1,
        [&](Job& job, std::mt19937& draw) {
          TestLeaders leaders(job);
          leaders.look_after({0});
          ASSERT_NO_FATAL_FAILURE(one_becomes_three(job, draw));
          for (int server = 0; server < 3; ++server) {
            EXPECT_GE(shelves_with(job.table(), server), 1);
          }
          nap(draw);
          job.ask_to_leave(0);
          ASSERT_TRUE(wait_until([&] {
            leaders.look_after({0, 1, 2});
            return job.server(0).may_leave();
          }));
          job.end_server(0);
          ASSERT_TRUE(wait_until_settled(job, {1, 2}));
          EXPECT_EQ(shelves_with(job.table(), 1), 2);
          EXPECT_EQ(shelves_with(job.table(), 2), 2);
        });
  }
}

TEST(ServedMoves, OfANetworkInPartsServersMayDieWhileOneComes) {
  for (unsigned seed = 0; seed < tries(6U); ++seed) {
    expect_no_push_lost_while(
        {.workers = 4, .servers = 3, .floats = 100'000, .newcomers = 1, .parts = 2}, 40, seed,
        [&](Job& job, std::mt19937& draw) {
          const int victim = static_cast<int>(draw() % 3);
          const int newcomer = job.add_server();
          nap(draw);
          job.kill_servers({victim});
          std::vector<int> living = {0, 1, 2, newcomer};
          std::erase(living, victim);
          ASSERT_TRUE(wait_until_settled(job, living));
          if (victim == 0) {
            EXPECT_EQ(std::ranges::count_if(living, [&](int server) { return job.server(server).leads(); }), 1);
          }
        });
  }
}

TEST(ServedMoves, OfANetworkInPartsALostCopyIsOneThatUpdatesDoNotWaitForWhereverAShelfIs) {
  const ParameterServer::Options gathering = {.update = [](std::uint64_t /*pushes*/, int absent) {
    return UpdateOptions{.rate = 1, .gather = std::max(1, 3 - absent)};
  }};
  Job job({.workers = 6, .servers = 2, .floats = 20'000, .newcomers = 1, .parts = 2}, gathering);
  for (const int lost : {4, 5}) {
    job.lose_worker(lost);
    for (int server = 0; server < 2; ++server) {
      ASSERT_TRUE(wait_until([&] { return job.fenced(server, lost).has_value(); }));
    }
  }
  job.kill_servers({1});  // who is left answers for all
  job.add_server();
  ASSERT_TRUE(wait_until_settled(job, {0, 2}));
  for (int worker = 0; worker < 4; ++worker) {
    push_ones(job, worker, 1);
  }
  for (const int part : {0, 1}) {
    const std::vector<float> values = fetched(job, part);
    EXPECT_EQ(std::set<float>(values.begin(), values.end()), std::set<float>{-1.0F}) << "one update of two gradients";
  }
}

TEST(ServedMoves, OfManyServersWithAShelfEachSomeLeaveAndOneComes) {
  constexpr int kServers = 40;
  expect_no_push_lost_while(
      {.servers = kServers, .floats = 200'000, .newcomers = 1}, 20, 1, [&](Job& job, std::mt19937& draw) {
        nap(draw);
        const int newcomer = job.add_server();
        job.ask_to_leave(kServers - 1);
        job.ask_to_leave(kServers - 2);
        ASSERT_TRUE(
            wait_until([&] { return job.server(kServers - 1).may_leave() && job.server(kServers - 2).may_leave(); }));
        ASSERT_TRUE(wait_until_settled(job, {0, 1, newcomer}));
        EXPECT_EQ(job.table().shelves(), kServers);
        EXPECT_GE(shelves_with(job.table(), newcomer), 1);
      });
}

TEST(ServedMoves, ANewcomerMayDieInTheMiddleOfItsJoining) {
  for (unsigned seed = 0; seed < tries(4U); ++seed) {
    for (const int copies : {1, 2}) {
      expect_no_push_lost_while({.servers = 2, .floats = 200'000, .copies = copies, .newcomers = 2}, 40, seed,
                                [&](Job& job, std::mt19937& draw) {
                                  const int first = job.add_server();
                                  ASSERT_TRUE(wait_until([&] { return job.table().lives(first); }));
                                  if (copies == 2) {
                                    nap(draw);
                                  }  // without copies what it has got would be lost with it
                                  job.kill_servers({first});
                                  const int second = job.add_server();
                                  ASSERT_TRUE(wait_until_settled(job, {0, 1, second}));
                                  EXPECT_EQ(shelves_with(job.table(), second), 4);
                                });
    }
  }
}

TEST(ServedMoves, WhoLeavesMayDieInTheMiddleOfIt) {
  for (unsigned seed = 0; seed < tries(6U); ++seed) {
    expect_no_push_lost_while({.servers = 3, .floats = 200'000, .newcomers = 1}, 40, seed,
                              [&](Job& job, std::mt19937& draw) {
                                job.ask_to_leave(1);
                                nap(draw);
                                nap(draw);
                                job.kill_servers({1});
                                ASSERT_TRUE(wait_until_settled(job, {0, 2}));
                              });
  }
}

TEST(ServedMoves, WhoLeadsMayLeaveAndTheNextOneAfterIt) {
  for (unsigned seed = 0; seed < tries(4U); ++seed) {
    for (const int copies : {1, 2}) {
      expect_no_push_lost_while({.servers = 2, .floats = 100'000, .copies = copies, .newcomers = 1}, 40, seed,
                                [&](Job& job, std::mt19937& draw) {
                                  TestLeaders leaders(job);
                                  job.add_server();
                                  std::vector<int> servers = {0, 1, 2};
                                  leaders.look_after({0});
                                  while (servers.size() > 1) {
                                    nap(draw);
                                    const int leaver = leaders.leader();
                                    job.ask_to_leave(leaver);
                                    ASSERT_TRUE(wait_until([&] {
                                      leaders.look_after(servers);
                                      return job.server(leaver).may_leave();
                                    }));
                                    job.end_server(leaver);
                                    std::erase(servers, leaver);
                                    ASSERT_TRUE(wait_until([&] {
                                      leaders.look_after(servers);
                                      return leaders.leader() != Ownership::kNobody;
                                    }));
                                    EXPECT_EQ(leaders.found(), "the last of " + std::to_string(leaver));
                                    ASSERT_TRUE(wait_until_settled(job, servers));
                                  }
                                });
    }
  }
}

TEST(ServedMoves, WhoGivesTheLeadUpAndWhoGetsItMayDieMeanwhile) {
  for (unsigned seed = 0; seed < tries(12U); ++seed) {
    expect_no_push_lost_while({.servers = 3, .floats = 100'000, .newcomers = 1}, 40, seed,
                              [&](Job& job, std::mt19937& draw) {
                                TestLeaders leaders(job);
                                std::vector<int> servers = {0, 1, 2};
                                leaders.look_after(servers);
                                job.ask_to_leave(0);
                                const auto some_time = Clock::now() + std::chrono::microseconds(draw() % 30'000);
                                ASSERT_TRUE(wait_until([&] {
                                  leaders.look_after(servers);
                                  return Clock::now() >= some_time;
                                }));
                                const int victim = draw() % 2 == 0 ? 0 : 1;  // which is to lead
                                job.kill_servers({victim});
                                std::erase(servers, victim);
                                ASSERT_TRUE(wait_until([&] {
                                  leaders.look_after(servers);
                                  return leaders.leader() == 2 || (victim == 0 && leaders.leader() == 1);
                                }));
                                ASSERT_TRUE(wait_until([&] {
                                  leaders.look_after(servers);
                                  return victim == 0 || job.server(0).may_leave();
                                }));
                                ASSERT_TRUE(wait_until_settled(job, servers));
                              });
  }
}

TEST(ServedMoves, OthersMayDieWhileSomebodyComesOrGoes) {
  for (unsigned seed = 0; seed < tries(6U); ++seed) {
    expect_no_push_lost_while({.servers = 3, .floats = 100'000, .newcomers = 1}, 40, seed,
                              [&](Job& job, std::mt19937& draw) {
                                const int newcomer = job.add_server();
                                nap(draw);
                                nap(draw);
                                const int victim = static_cast<int>(draw() % 3);  // who leads, too
                                job.kill_servers({victim});
                                std::vector<int> left = {0, 1, 2, newcomer};
                                std::erase(left, victim);
                                ASSERT_TRUE(wait_until_settled(job, left));
                                job.ask_to_leave(left.back());
                                nap(draw);
                                const int next = left[draw() % 2];
                                job.kill_servers({next});
                                std::erase(left, next);
                                TestLeaders leaders(job);
                                ASSERT_TRUE(wait_until([&] {
                                  leaders.look_after(left);  // of whom the newcomer may have come to lead
                                  return job.server(newcomer).may_leave();
                                }));
                                ASSERT_TRUE(wait_until_settled(job, left));
                              });
  }
}

TEST(ServedMoves, AWorkerThatIsLostMeanwhileIsFencedOnEveryShelf) {
  for (unsigned seed = 0; seed < tries(4U); ++seed) {
    Job job({.workers = 2, .servers = 1, .floats = 100'000, .newcomers = 1}, counting());
    push_ones(job, 0, 3);
    std::mt19937 draw(seed);
    const int newcomer = job.add_server();
    std::jthread pushes([&] { push_ones(job, 1, 20); });
    nap(draw);
    nap(draw);
    job.lose_worker(0);
    ASSERT_TRUE(wait_until([&] { return job.fenced(0, 0).has_value(); }));
    pushes.join();
    ASSERT_TRUE(wait_until_settled(job, {0, newcomer}));
    const std::vector<float> ones(job.floats(), 1.0F);
    const std::span<const float> part = ones;
    ServerClient& fenced = job.links(0).worker();
    fenced.add({&part, 1});
    ASSERT_TRUE(fenced.push({.id = {1, 3}}, soon()).outcome.ok());
    EXPECT_EQ(fenced.wait_pushed(soon()).status, ReplyHead::Status::fenced);
    const std::vector<float> values = fetched(job, 1);
    EXPECT_EQ(std::set<float>(values.begin(), values.end()), std::set<float>{-23.0F});
  }
}

/// What a leader of L-BFGS orders after each evaluation, to which a worker has pushed units of ones: sums and lengths
/// are whole numbers, so that a vector with one push too few or too many, or from another moment, is seen at once.
void evaluate_until(Job& job, const std::atomic<bool>& done) {
  constexpr VectorName kSum = kFirstFree;
  constexpr std::uint64_t kUnits = 3;
  ServerClient& leader = job.server(0).leader();
  ServerClient& worker = job.links(0).worker();
  const std::vector<float> ones(job.floats(), 1.0F);
  const std::span<const float> part = ones;
  const std::vector<VectorOrder> orders = {axpy_order(1, kGradient, kSum), dot_order(kSum, kSum),
                                           scale_order(kGradient, 0)};
  std::vector<double> dots;
  for (std::uint64_t units = 0; !done || units < 5 * kUnits;) {
    for (std::uint64_t i = 0; i < kUnits; ++i) {
      worker.add({&part, 1});
      ASSERT_TRUE(worker.push({.id = {++units, 0}}, soon()).outcome.ok());
    }
    ASSERT_TRUE(worker.wait_pushed(soon()).outcome.ok());
    ASSERT_TRUE(leader.run_vectors(orders, units + 1, dots, soon()).outcome.ok());
    const auto sum = static_cast<double>(units);
    ASSERT_EQ(dots.at(0), static_cast<double>(job.floats()) * sum * sum);
  }
}

TEST(ServedMoves, VectorsMoveAlongInTheMiddleOfAnEvaluation) {
  const ParameterServer::Options options = {.update = [](std::uint64_t, int) { return UpdateOptions{}; },
                                            .keeps_vectors = true};
  for (unsigned seed = 0; seed < tries(6U); ++seed) {
    Job job({.workers = 1, .servers = 2, .floats = 96'000, .newcomers = 2}, options);
    std::atomic<bool> done = false;
    std::jthread evaluations([&] { evaluate_until(job, done); });
    std::mt19937 draw(seed);
    nap(draw);
    const int first = job.add_server();
    nap(draw);
    if (seed % 2 == 0) {
      EXPECT_TRUE(wait_until_settled(job, {0, 1, first}));
      job.ask_to_leave(1);
      nap(draw);
      EXPECT_TRUE(wait_until([&] { return job.server(1).may_leave(); }));
      job.end_server(1);
    } else {
      job.kill_servers({first});
      EXPECT_TRUE(wait_until_settled(job, {0, 1, job.add_server()}));
    }
    done = true;
  }
}

}  // namespace
}  // namespace distbelief
