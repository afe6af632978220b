// Members of a team that die at every moment of a step, and the others that go on: ranks are threads, and a death is a
// fabric that ends all exchanges at its n-th message.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <thread>

#include "data/test_folder.h"
#include "metrics/metrics_log.h"
#include "train/test_moments.h"
#include "train/test_views.h"
#include "train/trainer.h"
#include "transport/local/local_fabric.h"

namespace distbelief {
namespace {

constexpr int kGroupWorkers = 3;
constexpr std::int64_t kGroupSamples = 50;  // no batch divides it
constexpr std::int64_t kEpochs = 2;
constexpr std::int64_t kGroupBatch = 12;

struct Ended {
  RunSummary summary;
  int posts = 0;
  bool leads = false;
};

class Regrouping : public testing::TestWithParam<const char*> {
 protected:
  RunConfig config() const {
    RunConfig config;
    config.model = "mlp";
    config.model_options = {{"hidden", "8"}};
    config.data = fmt::format("synthetic:classes=3,shape=1x4x4,samples={},test=20,seed=3", kGroupSamples);
    config.batch = kGroupBatch;
    config.epochs = kEpochs;
    config.threads = 1;
    config.workers = kGroupWorkers;
    config.log_every = 1;
    config.checkpoint_every = 1000;  // only those that are needed: each waits for the disk
    config.lr = 0.02;
    config.algorithm = GetParam();
    if (config.algorithm == "averaging" || config.algorithm == "gossip") {
      config.batch = kGroupBatch / kGroupWorkers;
    }
    if (config.algorithm == "averaging") {
      config.average_every = 3;
    }
    return config;
  }

  /// Trains; `deaths`: at which message a rank dies; `leaves`: from which on it wants to leave. What became of each.
  std::vector<Ended> train(const std::map<int, int>& deaths, const RunConfig& with,
                           const std::map<int, int>& leaves = {}) {
    folder.emplace();
    RunConfig config = with;
    config.out = (folder->path() / "run").string();
    const LockedFolder locked = prepare_run(config, {});
    std::vector<std::unique_ptr<Fabric>> fabrics = make_local_fabrics(kGroupWorkers);
    TestViews views(kGroupWorkers);
    std::vector<std::unique_ptr<DyingFabric>> dying;
    for (int rank = 0; rank < kGroupWorkers; ++rank) {
      const auto death = deaths.find(rank);
      dying.push_back(std::make_unique<DyingFabric>(std::move(fabrics[static_cast<std::size_t>(rank)]), views,
                                                    death == deaths.end() ? -1 : death->second));
      views.add(*dying.back());
    }
    std::vector<Ended> ended(kGroupWorkers);
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < kGroupWorkers; ++rank) {
      threads.emplace_back([&, rank] {
        DyingFabric& fabric = *dying[static_cast<std::size_t>(rank)];
        Group group(fabric, all_ranks(fabric), 1);
        std::uint32_t stands = 1;
        const Rank self{rank};
        const Team team = {.group = &group,
                           .patience = std::chrono::minutes(1),
                           .sharers = kGroupWorkers,
                           .next = [&, self](std::uint32_t epoch) { return views.next(self, epoch); },
                           .formed =
                               [&, self](std::uint32_t epoch) {
                                 if (views.is_dead(self)) {
                                   throw Died();  // the dead write no files
                                 }
                                 views.formed(self, epoch);
                                 stands = epoch;
                               },
                           .newest = [&] { return stands; },
                           .leaving =
                               [&, self] {
                                 const auto leave = leaves.find(self.value);
                                 return leave != leaves.end() && fabric.posts() >= leave->second;
                               },
                           .news_of =
                               [&](Rank lost) {
                                 return views.is_dead(lost) || views.is_gone(lost)
                                            ? std::optional(MemberNews{fmt::format("rank {}", lost.value),
                                                                       views.is_dead(lost) ? "died" : ""})
                                            : std::nullopt;
                               },
                           .fenced = [&, self] { return views.is_dead(self); }};
        RunObserver observer;
        {
          Trainer trainer = Trainer::in_team(team, config.out, false, config, observer);
          Ended& mine = ended[static_cast<std::size_t>(rank)];
          mine.summary.status = "lost";
          try {
            mine.summary = trainer.run([] { return false; });
          } catch (const Died&) {
          }
          mine.posts = fabric.posts();
          mine.leads = trainer.leads();
        }
        views.remove(self);
      });
    }
    threads.clear();
    return ended;
  }

  /// The run is what it would have been, but for who made it.
  void expect_whole(const std::vector<Ended>& ended, const std::map<int, int>& deaths, const Ended& undisturbed,
                    const std::string& what, bool at_the_end = false) {
    SCOPED_TRACE(what);
    const Ended* leader = nullptr;
    for (int rank = 0; rank < kGroupWorkers; ++rank) {
      const Ended& one = ended[static_cast<std::size_t>(rank)];
      if (deaths.contains(rank)) {
        EXPECT_EQ(one.summary.status, "lost");
        continue;
      }
      if (one.summary.status == "left") {
        continue;
      }
      EXPECT_EQ(one.summary.status, "finished") << one.summary.problem;
      leader = leader == nullptr ? &one : leader;
    }
    ASSERT_NE(leader, nullptr);
    EXPECT_TRUE(leader->leads);
    const RunSummary& summary = leader->summary;
    const std::uint64_t all = kGroupSamples * kEpochs;
    EXPECT_EQ(summary.samples, (SampleAudit{.leased = all, .applied = all}));
    EXPECT_EQ(summary.workers, kGroupWorkers);
    int left = kGroupWorkers - static_cast<int>(deaths.size());
    if (at_the_end && summary.workers_at_end < left) {
      --left;  // one was done before the death, and had left
    }
    EXPECT_EQ(summary.workers_at_end, left);
    EXPECT_EQ(summary.events.size(), deaths.size());
    EXPECT_TRUE(std::filesystem::exists(summary.folder / "model.safetensors"));
    EXPECT_TRUE(std::filesystem::exists(summary.folder / "summary.json"));
    const bool same_batches = config().algorithm == "allreduce" || config().algorithm == "sync";
    EXPECT_NEAR(*summary.last.test_loss, *undisturbed.summary.last.test_loss, same_batches ? 1e-4 : 0.2);
    std::int64_t step = 0;
    int epochs = 0;
    for (const MetricsRow& row : read_metrics(summary.folder / "metrics.jsonl")) {
      EXPECT_EQ(row.step, row.value("epoch_train_loss") ? step : step + 1);
      step = row.step;
      epochs += row.value("epoch_train_loss") ? 1 : 0;
    }
    EXPECT_EQ(epochs, kEpochs);
    EXPECT_EQ(step, summary.steps);
  }

  std::optional<TestFolder> folder;
};
INSTANTIATE_TEST_SUITE_P(All, Regrouping, testing::Values("allreduce", "sync", "averaging", "gossip"),
                         [](const auto& name) { return std::string(name.param); });

TEST_P(Regrouping, ADeathAtAnyMessageLosesNoSampleAndNoFinishedStep) {
  const std::vector<Ended> undisturbed = train({}, config());
  expect_whole(undisturbed, {}, undisturbed[0], "undisturbed");
  for (int victim = 0; victim < kGroupWorkers; ++victim) {
    const int posts = undisturbed[static_cast<std::size_t>(victim)].posts;
    for (const int moment : moments_of_death(posts, 12, 12)) {
      const std::map<int, int> deaths = {{victim, moment}};
      const std::vector<Ended> ended = train(deaths, config());
      if (ended[static_cast<std::size_t>(victim)].summary.status == "finished") {
        continue;  // with others' messages in another order it had fewer to post
      }
      if (victim == 0 && ended[1].summary.status == "lost" && ended[1].summary.steps == 0) {
        continue;  // the leader died before anybody knew what it knew
      }
      expect_whole(ended, deaths, undisturbed[0],
                   fmt::format("rank {} died at message {} of {}", victim, moment, posts), moment >= posts - 2);
    }
  }
}

/// Workers that have other shares of a batch than the others.
class Uneven : public Regrouping {
 protected:
  RunConfig uneven() const {
    RunConfig with = config();
    with.balance = "5,3,1";
    return with;
  }
};
INSTANTIATE_TEST_SUITE_P(All, Uneven, testing::Values("allreduce", "sync"),
                         [](const auto& name) { return std::string(name.param); });

TEST_P(Uneven, SharesChangeNothingButWhoComputes) {
  const std::vector<Ended> equal = train({}, config());
  const std::vector<Ended> ended = train({}, uneven());
  expect_whole(ended, {}, equal[0], "uneven");
  EXPECT_EQ(ended[0].summary.shares, (std::vector<MemberShare>{{0, 7}, {1, 4}, {2, 1}}));
  EXPECT_EQ(equal[0].summary.shares, (std::vector<MemberShare>{{0, 4}, {1, 4}, {2, 4}}));
}

TEST_P(Uneven, WhenAMemberDiesTheOthersShareItsPartByTheirSpeeds) {
  const std::vector<Ended> undisturbed = train({}, uneven());
  const std::vector<std::vector<MemberShare>> left = {{{1, 9}, {2, 3}}, {{0, 10}, {2, 2}}, {{0, 8}, {1, 4}}};
  for (int victim = 0; victim < kGroupWorkers; ++victim) {
    const int posts = undisturbed[static_cast<std::size_t>(victim)].posts;
    for (int i = 0; i < 8; ++i) {
      const std::map<int, int> deaths = {{victim, posts / 2 + i}};
      const std::vector<Ended> ended = train(deaths, uneven());
      if (ended[static_cast<std::size_t>(victim)].summary.status == "finished") {
        continue;  // with others' messages in another order it had fewer to post
      }
      expect_whole(ended, deaths, undisturbed[0], fmt::format("rank {} died at message {}", victim, posts / 2 + i));
      EXPECT_EQ(ended[victim == 0 ? 1 : 0].summary.shares, left[static_cast<std::size_t>(victim)]);
    }
  }
}

TEST_P(Regrouping, WhoLeavesAtAnyTimeCostsNoStepAndNoSample) {
  const std::vector<Ended> undisturbed = train({}, config());
  for (const std::vector<int>& leavers : {std::vector{2}, {1}, {0}, {0, 1}, {0, 2}, {1, 2}}) {
    for (const int moment : {1, 8, 15}) {  // of 16 parts of the run
      std::map<int, int> leaves;
      for (const int leaver : leavers) {
        leaves[leaver] = moment * undisturbed[static_cast<std::size_t>(leaver)].posts / 16;
      }
      const std::vector<Ended> ended = train({}, config(), leaves);
      const std::string what = fmt::format("{} leave at {}/16", fmt::join(leavers, " and "), moment);
      SCOPED_TRACE(what);
      const auto left = std::ranges::count_if(ended, [](const Ended& one) { return one.summary.status == "left"; });
      if (moment < 15) {
        EXPECT_EQ(left, std::ssize(leavers));
      }
      const Ended* leader = nullptr;
      for (const Ended& one : ended) {
        leader = leader == nullptr && one.summary.status == "finished" ? &one : leader;
      }
      ASSERT_NE(leader, nullptr);
      std::map<int, int> none;
      for (int i = 0; i < left; ++i) {
        none[100 + i] = 0;  // so many events, and members fewer
      }
      expect_whole(ended, none, undisturbed[0], what);
      for (const TeamEvent& event : leader->summary.events) {
        EXPECT_EQ(event.what, TeamEvent::What::left);
      }
    }
  }
}

TEST_P(Regrouping, ADeathWhileOneLeavesLosesNoSample) {
  const std::vector<Ended> undisturbed = train({}, config());
  const int half = undisturbed[1].posts / 2;
  for (int moment = half; moment < half + 24; moment += kSlowness) {
    const std::vector<Ended> ended = train({{1, moment}}, config(), {{2, half}});
    if (ended[1].summary.status != "lost") {
      continue;
    }
    SCOPED_TRACE(fmt::format("rank 1 died at message {}, rank 2 wants to leave from {} on", moment, half));
    EXPECT_EQ(ended[2].summary.status, "left");
    EXPECT_EQ(ended[0].summary.status, "finished") << ended[0].summary.problem;
    EXPECT_EQ(ended[0].summary.samples,
              (SampleAudit{.leased = kGroupSamples * kEpochs, .applied = kGroupSamples * kEpochs}));
    EXPECT_EQ(ended[0].summary.events.size(), 2U);
  }
}

TEST_P(Regrouping, WhoComesWhenAllOthersHaveGoneLeavesTheirFolderAsItIs) {
  (void)train({}, config());
  const std::filesystem::path run = folder->path() / "run";
  const std::string metrics = read_file(run / "metrics.jsonl");
  const std::string written = read_file(run / "run.yaml");
  const auto fabrics = make_local_fabrics(1);
  Group group(*fabrics[0], {Rank{0}}, 5);
  Team team = {.group = &group,
               .patience = std::chrono::minutes(1),
               .next = [](std::uint32_t epoch) -> std::optional<NextTeam> {
                 return epoch >= 5 ? std::nullopt : std::optional(NextTeam{.epoch = 5, .members = {Rank{0}}});
               },
               .newest = [] { return 5U; }};
  team.late = true;
  RunObserver observer;
  RunConfig late = config();
  late.out = run.string();
  Trainer trainer = Trainer::in_team(team, run, false, late, observer);
  EXPECT_EQ(trainer.run([] { return false; }).status, "given up");
  EXPECT_EQ(read_file(run / "metrics.jsonl"), metrics);
  EXPECT_EQ(read_file(run / "run.yaml"), written);
}

TEST_P(Regrouping, TwoDeathsLeaveOneThatEndsTheRun) {
  const std::vector<Ended> undisturbed = train({}, config());
  for (int survivor = 0; survivor < kGroupWorkers; ++survivor) {
    for (const int apart : {0, 1, 5, 60}) {
      std::map<int, int> deaths;
      for (int victim = 0; victim < kGroupWorkers; ++victim) {
        if (victim != survivor) {
          const int posts = undisturbed[static_cast<std::size_t>(victim)].posts;
          deaths[victim] = deaths.empty() ? posts / 2 : posts / 2 + apart;  // all have joined by then
        }
      }
      const std::vector<Ended> ended = train(deaths, config());
      if (std::ranges::any_of(deaths, [&](const auto& death) {
            return ended[static_cast<std::size_t>(death.first)].summary.status == "finished";
          })) {
        continue;  // with fewer members it had fewer messages to post
      }
      if (config().algorithm == "sync" && survivor == 2 &&
          ended[2].summary.status == "lost") {  // both who kept the optimizer's state
        EXPECT_LE(apart, 5);
        continue;
      }
      expect_whole(ended, deaths, undisturbed[0], fmt::format("rank {} is left, {} messages apart", survivor, apart));
    }
  }
}

TEST_P(Regrouping, KeepsTheBatchOrTheWorkersShareOfIt) {
  const std::vector<Ended> undisturbed = train({}, config());
  const bool synchronous = config().algorithm == std::string("allreduce") || config().algorithm == std::string("sync");
  for (const std::string& rule : {std::string("global"), std::string("worker")}) {
    if (!synchronous && rule == "worker") {
      continue;  // their batches are each worker's own
    }
    RunConfig with = config();
    with.elastic_batch = rule;
    const std::vector<Ended> ended = train({{2, undisturbed[2].posts / 2}}, with);
    const RunSummary& summary = ended[0].summary;
    EXPECT_EQ(summary.status, "finished");
    EXPECT_EQ(summary.samples.applied, static_cast<std::uint64_t>(kGroupSamples * kEpochs));
    EXPECT_EQ(summary.batch, synchronous && rule == "global" ? kGroupBatch : kGroupBatch * 2 / 3);
    EXPECT_EQ(summary.batch_per_worker, synchronous && rule == "global" ? kGroupBatch / 2 : kGroupBatch / 3);
    for (const MetricsRow& row : read_metrics(summary.folder / "metrics.jsonl")) {
      const bool before = row.step <= summary.events.at(0).step;
      if (const std::optional<double> rate = row.value("learning_rate")) {
        EXPECT_NEAR(*rate, before || rule == "global" ? 0.02 : 0.02 * 2 / 3, 1e-7) << "step " << row.step;
      }
    }
  }
}

}  // namespace
}  // namespace distbelief
