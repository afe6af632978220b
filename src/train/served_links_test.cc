#include "train/served_links.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <set>

#include "params/update_rule.h"
#include "transport/local/local_fabric.h"

namespace distbelief {
namespace {

constexpr std::chrono::seconds kPatience{60};
Clock::time_point deadline() { return Clock::now() + kPatience; }

/// Workers and servers on threads of this process, which die when the test says so. What each process hears of deaths
/// it hears from here.
class Job {
 public:
  Job(int workers, int servers, std::int64_t floats, const ParameterServer::Options& options)
      : workers_(workers),
        hosts_(static_cast<std::size_t>(servers), "host"),
        fabrics_(make_local_fabrics(workers + servers)) {
    table_.add("a.weight", {.name = "weight", .shape = {floats}, .init = {}});
    start_.assign(static_cast<std::size_t>(table_.size()), 0.0F);
    for (int rank = 0; rank < workers + servers; ++rank) {
      processes_.push_back(std::make_unique<Process>());
      Process& process = *processes_.back();
      process.routes =
          std::make_unique<ServedRoutes>(hosts_, ServedRoutes::Events{.lost = [this] { return lost(); },
                                                                      .is_gone =
                                                                          [this](int server) {
                                                                            const std::vector<int> all = lost();
                                                                            return std::ranges::count(all, server) > 0;
                                                                          }});
      process.team = {.fabric = fabrics_[static_cast<std::size_t>(rank)].get(),
                      .view = 1,
                      .incarnation = static_cast<std::uint64_t>(rank + 1),
                      .workers = workers,
                      .servers = servers,
                      .routes = process.routes.get(),
                      .patience = kPatience,
                      .newly_lost =
                          [this, told = std::size_t{0}]() mutable {
                            const std::scoped_lock lock(mutex_);
                            const auto from = lost_workers_.begin() + static_cast<std::ptrdiff_t>(told);
                            told = lost_workers_.size();
                            return std::vector(from, lost_workers_.end());
                          },
                      .fenced =
                          [this, rank](std::uint64_t incarnation, const std::vector<PushId>& open) {
                            const std::scoped_lock lock(mutex_);
                            for (const PushId& push : open) {
                              fenced_[{rank, incarnation}].push_back(push);
                            }
                            fenced_[{rank, incarnation}];
                          }};
      ServedLinks::Hooks hooks;
      hooks.heard = [&process](const RequestHead& request, const ReplyHead&, std::string_view) {
        if (request.kind == RequestHead::Kind::push) {
          process.heard.push_back(request.push.lease * 1000 + request.push.seq);
        }
      };
      hooks.save_heard = [&process] {
        return std::string(reinterpret_cast<const char*>(process.heard.data()),
                           process.heard.size() * sizeof(std::uint64_t));
      };
      hooks.restore_heard = [&process](const std::string& saved) {
        process.heard.resize(saved.size() / sizeof(std::uint64_t));
        std::memcpy(process.heard.data(), saved.data(), saved.size());
      };
      process.links = std::make_unique<ServedLinks>(process.team, std::vector<ServedLinks::Space>{{&table_, start_}},
                                                    *rule_, options, hooks);
    }
  }
  ~Job() {
    for (const std::unique_ptr<Process>& process : processes_) {
      process->links.reset();
    }
  }

  ServedLinks& links(int rank) { return *processes_[static_cast<std::size_t>(rank)]->links; }
  ServedLinks& server(int number) { return links(workers_ + number); }
  /// What it was told of pushes, by lease * 1000 + seq.
  const std::vector<std::uint64_t>& heard(int server) {
    return processes_[static_cast<std::size_t>(workers_ + server)]->heard;
  }
  /// As a kill -9 of all of them would, in the middle of whatever they do.
  void kill_servers(const std::vector<int>& numbers) {
    for (const int number : numbers) {
      for (int rank = 0; rank < static_cast<int>(fabrics_.size()); ++rank) {  // nothing more of it comes out
        if (rank != workers_ + number) {
          fabrics_[static_cast<std::size_t>(workers_ + number)]->lose(Rank{rank}, "it is killed");
        }
      }
    }
    for (const int number : numbers) {
      processes_[static_cast<std::size_t>(workers_ + number)]->links.reset();
      fabrics_[static_cast<std::size_t>(workers_ + number)].reset();
    }
    const std::scoped_lock lock(mutex_);
    lost_.insert(lost_.end(), numbers.begin(), numbers.end());
  }
  void lose_worker(int rank) {
    const std::scoped_lock lock(mutex_);
    lost_workers_.push_back({static_cast<std::uint64_t>(rank + 1), Rank{rank}});
  }
  /// What a server said of a worker that is fenced; nothing: it has not yet.
  std::optional<std::vector<PushId>> fenced(int server, int worker) {
    const std::scoped_lock lock(mutex_);
    const auto found = fenced_.find({workers_ + server, static_cast<std::uint64_t>(worker + 1)});
    return found == fenced_.end() ? std::nullopt : std::optional(found->second);
  }
  std::size_t floats() const { return start_.size(); }

 private:
  struct Process {
    std::unique_ptr<ServedRoutes> routes;
    ServedTeam team;
    std::vector<std::uint64_t> heard;  // before the links, which write to it
    std::unique_ptr<ServedLinks> links;
  };
  std::vector<int> lost() {
    const std::scoped_lock lock(mutex_);
    return lost_;
  }

  const int workers_;
  const std::vector<std::string> hosts_;
  ParameterTable table_;
  std::vector<float> start_;
  const std::unique_ptr<UpdateRule> rule_ = make_rule({.name = "sgd"});
  std::mutex mutex_;
  std::vector<int> lost_;  // guarded by mutex_, as the next two
  std::vector<ServedTeam::LostWorker> lost_workers_;
  std::map<std::pair<int, std::uint64_t>, std::vector<PushId>> fenced_;
  std::vector<std::unique_ptr<Fabric>> fabrics_;
  std::vector<std::unique_ptr<Process>> processes_;
};

ParameterServer::Options counting() {
  return {.update = [](std::uint64_t, int) { return UpdateOptions{.rate = 1}; }};
}

/// Pushes units of ones, and fetches now and then. All must be acknowledged.
void push_ones(Job& job, int worker, std::uint64_t pushes) {
  ServerClient& client = job.links(worker).worker();
  const std::vector<float> ones(job.floats(), 1.0F);
  std::vector<float> values(job.floats());
  const std::span<const float> part = ones;
  for (std::uint64_t i = 0; i < pushes; ++i) {
    if (i % 3 == 0) {
      client.begin_fetch();
    }
    client.add({&part, 1});
    ASSERT_TRUE(client.push({.id = {static_cast<std::uint64_t>(worker + 1), i}, .wants_values = i % 2 == 0}, deadline())
                    .outcome.ok());
    const ServerClient::PushReport report = client.wait_pushed(deadline());
    ASSERT_TRUE(report.outcome.ok()) << report.outcome.reason;
    ASSERT_EQ(report.status, ReplyHead::Status::done);
    if (client.fetching()) {
      ASSERT_TRUE(client.wait_fetched(deadline()).ok());
      client.take(values);
    }
  }
}

std::vector<float> fetched(Job& job, int worker) {
  ServerClient& client = job.links(worker).worker();
  std::vector<float> values(job.floats());
  client.begin_fetch();
  EXPECT_TRUE(client.wait_fetched(deadline()).ok());
  client.take(values);
  return values;
}

bool wait_until(const std::function<bool()>& done) {
  for (const Clock::time_point end = deadline(); Clock::now() < end;) {
    if (done()) {
      return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

#ifdef DISTBELIEF_SANITIZED
constexpr std::uint64_t kSlowness = 5;
#else
constexpr std::uint64_t kSlowness = 1;
#endif

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
  if (victims.empty() || leader > 0) {
    EXPECT_EQ(job.server(leader).leads(), leader > 0);
  }
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
  const Outcome outcome = client.wait_fetched(Clock::now() + std::chrono::milliseconds(300));
  // Either server 2 knows that it never had what the two held, or nobody ever answers for it.
  EXPECT_TRUE(wait_until([&] { return !job.server(2).broken().empty(); }));
  EXPECT_FALSE(outcome.ok());
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
  ASSERT_TRUE(fenced.push({.id = {2, 7}}, deadline()).outcome.ok());
  EXPECT_EQ(fenced.wait_pushed(deadline()).status, ReplyHead::Status::fenced);
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
  EXPECT_EQ(job.server(1).leader().order(RequestHead::Kind::slow_down, 0.5F, deadline()).status,
            ReplyHead::Status::done);
  push_ones(job, 0, 2);
  EXPECT_EQ(fetched(job, 0)[0], -1.0F);
  std::vector<std::string> states;
  EXPECT_TRUE(job.server(1).leader().save(states, deadline()).outcome.ok());
  EXPECT_EQ(states.size(), 2U);
}

}  // namespace
}  // namespace distbelief
