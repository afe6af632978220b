// Teams whose network is cut, and whose members die at any message: ranks are threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "data/test_folder.h"
#include "metrics/metrics_log.h"
#include "train/team_run.h"
#include "train/test_moments.h"
#include "train/test_views.h"
#include "transport/local/local_fabric.h"
#include "transport/locked/locked_fabric.h"

namespace distbelief {
namespace {

constexpr std::int64_t kCutSamples = 40;  // no batch divides it
constexpr std::int64_t kCutEpochs = 2;
constexpr const char* kUnused = "was not needed";  // a standby

/// How a network is cut, and what came of a run of it.
struct CutGrid {
  const char* name;
  int replicas, stages, tensor;
  const char* stage_at;
  const char* cuts;
  const char* algorithm = "allreduce";

  int workers() const { return replicas * stages * tensor; }
};

struct CutEnd {
  RunSummary summary;
  int posts = 0;
  bool leads = false;
};

struct CutRun {
  std::vector<CutEnd> ends;
  std::vector<std::string> notes;

  int count(const std::string& status) const {
    return static_cast<int>(
        std::ranges::count_if(ends, [&](const CutEnd& end) { return end.summary.status == status; }));
  }
  /// Who told what came of it.
  const CutEnd* leader() const {
    const auto found =
        std::ranges::find_if(ends, [](const CutEnd& end) { return end.leads && end.summary.status != "lost"; });
    return found == ends.end() ? nullptr : &*found;
  }
};

class CutNotes : public RunObserver {
 public:
  CutNotes(std::mutex& mutex, std::vector<std::string>& notes) : mutex_(mutex), notes_(notes) {}
  void note(std::string_view text) override {
    const std::scoped_lock lock(mutex_);
    notes_.emplace_back(text);
  }

 private:
  std::mutex& mutex_;
  std::vector<std::string>& notes_;
};

class CutTeam : public testing::Test {
 protected:
  static RunConfig config(const CutGrid& grid) {
    RunConfig config;
    config.model = "mlp";
    config.model_options = {{"hidden", "8,6"}};
    config.data = fmt::format("synthetic:classes=3,shape=1x4x4,samples={},test=20,seed=3", kCutSamples);
    config.batch = 12;
    config.epochs = kCutEpochs;
    config.threads = 1;
    config.stages = grid.stages;
    config.tensor = grid.tensor;
    config.stage_at = grid.stage_at;
    config.cuts = grid.cuts;
    config.micro_batches = grid.stages > 1 ? 2 : 0;
    config.workers = grid.workers();
    config.algorithm = grid.algorithm;
    config.momentum = 0.9;
    config.log_every = 1;
    config.checkpoint_every = grid.replicas > 1 ? 1000 : 3;  // each waits for the disk
    config.lr = 0.02;
    return config;
  }

  /// `deaths`: at which message a rank dies.
  CutRun train(const RunConfig& with, const std::map<int, int>& deaths, int standbys = 0) {
    folder.emplace();
    RunConfig config = with;
    config.out = (folder->path() / "run").string();
    const LockedFolder locked = prepare_run(config, {});
    const auto workers = static_cast<int>(config.workers);
    const int all = workers + standbys;
    std::vector<std::unique_ptr<Fabric>> fabrics = make_local_fabrics(all);
    TestViews views(workers, standbys);
    std::vector<DyingFabric*> dying;
    for (int rank = 0; rank < all; ++rank) {
      const auto death = deaths.find(rank);
      std::unique_ptr<Fabric>& fabric = fabrics[static_cast<std::size_t>(rank)];
      auto made = std::make_unique<DyingFabric>(std::move(fabric), views, death == deaths.end() ? -1 : death->second);
      views.add(*made);
      dying.push_back(made.get());
      fabric = std::make_unique<LockedFabric>(std::move(made));
    }
    CutRun run;
    run.ends.resize(static_cast<std::size_t>(all));
    std::mutex mutex;
    {
      std::vector<std::jthread> threads;
      for (int rank = 0; rank < all; ++rank) {
        threads.emplace_back([&, rank] {
          const auto i = static_cast<std::size_t>(rank);
          const Rank self{rank};
          CutEnd& mine = run.ends[i];
          NextTeam beginning = {.epoch = 1, .members = all_ranks(*fabrics[i])};
          beginning.members.resize(static_cast<std::size_t>(workers));
          if (rank >= workers) {
            mine.summary.status = kUnused;
            const std::optional<NextTeam> called = views.is_called(self) ? views.next(self, 1) : std::nullopt;
            if (!called) {
              return;
            }
            beginning = *called;
          }
          Group group(*fabrics[i], beginning.members, beginning.epoch);
          const Team team = {.group = &group,
                             .patience = std::chrono::minutes(1),
                             .sharers = workers,
                             .next = [&, self](std::uint32_t epoch) { return views.next(self, epoch); },
                             .formed =
                                 [&, self](std::uint32_t epoch) {
                                   if (views.is_dead(self)) {
                                     throw Died();  // the dead write no files
                                   }
                                   views.formed(self, epoch);
                                 },
                             .late = rank >= workers,
                             .news_of =
                                 [&](Rank other) {
                                   return std::optional(MemberNews{fmt::format("rank {}", other.value),
                                                                   views.is_dead(other) ? "died" : ""});
                                 },
                             .fenced = [&, self] { return views.is_dead(self); }};
          CutNotes observer(mutex, run.notes);
          mine.summary.status = "lost";
          try {
            const TeamResult result = train_in_team(team, config.out, false, config, observer, [] { return false; });
            mine.summary = result.summary;
            mine.leads = result.leads;
          } catch (const Died&) {
          } catch (const std::exception& error) {
            mine.summary.problem = error.what();
          }
          mine.posts = dying[i]->posts();
          views.remove(self);
        });
      }
    }
    return run;
  }

  /// The run is what it would have been. `left`: workers who train at its end.
  void expect_whole(const CutRun& run, const std::map<int, int>& deaths, int left, double wanted_loss,
                    const std::string& what) {
    SCOPED_TRACE(what + [&] {
      std::string all;
      for (const std::string& note : run.notes) {
        all += "\n  " + note;
      }
      for (const CutEnd& end : run.ends) {
        all += "\n  " + end.summary.status + " " + end.summary.problem;
      }
      return all;
    }());
    const CutEnd* const leader = run.leader();
    ASSERT_NE(leader, nullptr);
    const RunSummary& summary = leader->summary;
    EXPECT_EQ(summary.status, "finished");
    EXPECT_EQ(summary.workers_at_end, left);
    for (int rank = 0; rank < std::ssize(run.ends); ++rank) {
      const std::string& status = run.ends[static_cast<std::size_t>(rank)].summary.status;
      EXPECT_EQ(status == "lost", deaths.contains(rank)) << "rank " << rank;
    }
    const std::uint64_t all = kCutSamples * kCutEpochs;
    EXPECT_EQ(summary.samples, (SampleAudit{.leased = all, .applied = all}));
    std::set<std::string> lost;
    for (const TeamEvent& event : summary.events) {
      if (event.what == TeamEvent::What::lost) {
        EXPECT_TRUE(lost.insert(event.who).second) << event.who;
      }
    }
    for (const auto& [rank, moment] : deaths) {  // who died before it had a part was never there
      EXPECT_TRUE(rank >= summary.workers || lost.contains(fmt::format("rank {}", rank)));
    }
    EXPECT_LE(lost.size(), deaths.size());
    EXPECT_TRUE(std::filesystem::exists(summary.folder / "model.safetensors"));
    EXPECT_TRUE(std::filesystem::exists(summary.folder / "summary.json"));
    EXPECT_NEAR(*summary.last.test_loss, wanted_loss, 1e-4);
    std::int64_t step = 0;
    int epochs = 0;
    for (const MetricsRow& row : read_metrics(summary.folder / "metrics.jsonl")) {
      EXPECT_EQ(row.step, row.value("epoch_train_loss") ? step : step + 1);
      step = row.step;
      epochs += row.value("epoch_train_loss") ? 1 : 0;
    }
    EXPECT_EQ(epochs, kCutEpochs);
    EXPECT_EQ(step, summary.steps);
  }

  void expect_to_survive_deaths(const CutGrid& grid, int in_a_row, int elsewhere, int left, int standbys = 0) {
    const RunConfig with = config(grid);
    const CutRun undisturbed = train(with, {});
    const double loss = undisturbed.ends[0].summary.last.test_loss.value_or(-1);
    expect_whole(undisturbed, {}, grid.workers(), loss, "undisturbed");
    for (int victim = 0; victim < grid.workers(); ++victim) {
      const int posts = undisturbed.ends[static_cast<std::size_t>(victim)].posts;
      for (const int moment : moments_of_death(posts, in_a_row, elsewhere)) {
        const std::map<int, int> deaths = {{victim, moment}};
        const CutRun run = train(with, deaths, standbys);
        if (run.ends[static_cast<std::size_t>(victim)].summary.status == "finished") {
          continue;  // with others' messages in another order it had fewer to post
        }
        if (moment >= posts - 8 && run.leader() != nullptr && run.leader()->summary.workers_at_end != left) {
          continue;  // all was written, and some had left
        }
        expect_whole(run, deaths, left, loss,
                     fmt::format("{}: rank {} died at message {} of {}", grid.name, victim, moment, posts));
      }
    }
  }

  std::optional<TestFolder> folder;
};

constexpr CutGrid kTwoByStages = {"2 copies of 2 stages", 2, 2, 1, "hidden2", ""};
constexpr CutGrid kTwoByTensor = {"2 copies over 2 workers", 2, 1, 2, "", "hidden1=outputs,hidden2=inputs"};
constexpr CutGrid kTwoByTwoByTwo = {"2 copies of 2 stages over 2 workers", 2, 2, 2, "hidden2", "hidden1=outputs"};
constexpr CutGrid kThreeByStages = {"3 copies of 2 stages", 3, 2, 1, "hidden2", ""};

TEST_F(CutTeam, OfStagesSurvivesADeathAtAnyMessage) { expect_to_survive_deaths(kTwoByStages, 24, 8, 2); }

TEST_F(CutTeam, OfLayersSurvivesADeathAtAnyMessage) { expect_to_survive_deaths(kTwoByTensor, 24, 8, 2); }

TEST_F(CutTeam, OfStagesAndLayersSurvivesADeath) { expect_to_survive_deaths(kTwoByTwoByTwo, 4, 4, 4); }

TEST_F(CutTeam, GivesUpTheCopyOfTheDeadAndSaysSo) {
  const RunConfig with = config(kThreeByStages);
  const CutRun undisturbed = train(with, {});
  const CutRun run = train(with, {{3, undisturbed.ends[3].posts / 2}});
  expect_whole(run, {{3, 0}}, 4, *undisturbed.ends[0].summary.last.test_loss, "one copy is given up");
  EXPECT_EQ(run.ends[2].summary.status, "given up");
  ASSERT_FALSE(run.notes.empty());
  EXPECT_TRUE(
      run.notes[0].starts_with("rank 3 died: copy 2 of 3 is given up, worker 2 ends; 2 copies go on after step "))
      << run.notes[0];
}

TEST_F(CutTeam, MakesCopiesOfWhatIsLeftOfOthers) {
  const RunConfig with = config(kThreeByStages);
  const CutRun undisturbed = train(with, {});
  const double loss = *undisturbed.ends[0].summary.last.test_loss;
  for (const int apart : {0, 1, 7, 40}) {
    // The leader and the other part of another copy: rank 1 and rank 2 are together then, unless one has left before.
    const std::map<int, int> deaths = {{0, undisturbed.ends[0].posts / 2}, {3, undisturbed.ends[3].posts / 2 + apart}};
    const CutRun run = train(with, deaths);
    ASSERT_NE(run.leader(), nullptr);
    const int left = run.leader()->summary.workers_at_end;
    EXPECT_TRUE(left == 4 || left == 2) << left;
    expect_whole(run, deaths, left, loss, fmt::format("{} messages apart", apart));
  }
}

TEST_F(CutTeam, HasAStandbyTakeTheDeadOnesPlaceAtAnyMessage) {
  expect_to_survive_deaths(kTwoByStages, 16, 8, 4, 1);
  expect_to_survive_deaths(kTwoByTensor, 8, 6, 4, 1);
  expect_to_survive_deaths(kTwoByTwoByTwo, 2, 2, 8, 1);
}

TEST_F(CutTeam, GivesAStandbyThePartOfTheDeadFromAnotherCopyAndSaysSo) {
  const RunConfig with = config(kTwoByStages);
  const CutRun undisturbed = train(with, {});
  const CutRun run = train(with, {{1, undisturbed.ends[1].posts / 2}}, 2);
  expect_whole(run, {{1, 0}}, 4, *undisturbed.ends[0].summary.last.test_loss, "one of two standbys");
  EXPECT_EQ(run.ends[4].summary.status, "finished");
  EXPECT_EQ(run.ends[5].summary.status, kUnused);
  ASSERT_EQ(run.notes.size(), 1U);
  EXPECT_TRUE(run.notes[0].starts_with("rank 1 died; rank 4 joined: 2 copies go on after step ")) << run.notes[0];
  const std::vector<TeamEvent>& events = run.leader()->summary.events;
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[1].what, TeamEvent::What::joined);
  EXPECT_EQ(events[1].who, "rank 4");
}

TEST_F(CutTeam, HasAsManyPlacesTakenAsThereAreStandbys) {
  const RunConfig with = config(kTwoByStages);
  const CutRun undisturbed = train(with, {});
  const double loss = *undisturbed.ends[0].summary.last.test_loss;
  for (const int apart : {0, 1, 7, 40}) {
    // A whole copy, both halves of two copies, the leader, and a part that nobody has any more.
    for (const auto& [first, second] : std::map<int, int>{{2, 3}, {0, 3}, {1, 3}}) {
      const std::map<int, int> deaths = {{first, undisturbed.ends[0].posts / 2},
                                         {second, undisturbed.ends[0].posts / 2 + apart}};
      expect_whole(train(with, deaths, 2), deaths, 4, loss, fmt::format("{} and {}, {} apart", first, second, apart));
    }
  }
}

TEST_F(CutTeam, SurvivesTheDeathOfAStandbyThatTakesAPlace) {
  const RunConfig with = config(kTwoByStages);
  const CutRun undisturbed = train(with, {});
  const double loss = *undisturbed.ends[0].summary.last.test_loss;
  const CutRun usual = train(with, {{2, undisturbed.ends[2].posts / 2}}, 1);
  const int posts = usual.ends[4].posts;
  for (const int moment : moments_of_death(posts, 2, 24)) {
    for (const int standbys : {1, 2}) {
      const std::map<int, int> deaths = {{2, undisturbed.ends[2].posts / 2}, {4, moment}};
      const CutRun run = train(with, deaths, standbys);
      if (run.ends[4].summary.status == "finished") {
        continue;  // it had fewer to post
      }
      const int left = standbys == 1 ? 2 : 4;
      if (moment >= posts - 8 && run.leader() != nullptr && run.leader()->summary.workers_at_end != left) {
        continue;  // all was written, and some had left
      }
      expect_whole(run, deaths, left, loss, fmt::format("at message {} of {}, {} standbys", moment, posts, standbys));
    }
  }
}

TEST_F(CutTeam, OfOneCopyGoesBackWithTheSameCutWhenThereIsAStandby) {
  const CutGrid stages = {"3 stages", 1, 3, 1, "hidden2,output", ""};
  expect_to_survive_deaths(stages, 3, 5, 3, 1);
  const CutGrid tensor = {"2 workers", 1, 1, 2, "", "hidden1=outputs,hidden2=inputs"};
  expect_to_survive_deaths(tensor, 2, 4, 2, 1);
}

TEST_F(CutTeam, OfOtherAlgorithmsGoesBackWithTheStandby) {
  for (const char* algorithm : {"sync", "averaging", "gossip"}) {
    CutGrid grid = kTwoByStages;
    grid.algorithm = algorithm;
    RunConfig with = config(grid);
    with.checkpoint_every = 3;
    const CutRun undisturbed = train(with, {});
    for (int victim = 0; victim < 4; ++victim) {
      const std::map<int, int> deaths = {{victim, undisturbed.ends[static_cast<std::size_t>(victim)].posts / 2}};
      const CutRun run = train(with, deaths, 1);
      ASSERT_NE(run.leader(), nullptr) << algorithm;
      EXPECT_EQ(run.leader()->summary.workers_at_end, 4) << algorithm;
      const std::uint64_t all = kCutSamples * kCutEpochs;
      EXPECT_EQ(run.leader()->summary.samples, (SampleAudit{.leased = all, .applied = all})) << algorithm;
      if (grid.algorithm == std::string("sync")) {
        expect_whole(run, deaths, 4, *undisturbed.ends[0].summary.last.test_loss, algorithm);
      }
    }
  }
}

TEST_F(CutTeam, OfOneCopyGoesBackToTheCheckpointWithFewerParts) {
  const CutGrid stages = {"3 stages", 1, 3, 1, "hidden2,output", ""};
  expect_to_survive_deaths(stages, 4, 6, 2);
  const CutGrid tensor = {"2 workers", 1, 1, 2, "", "hidden1=outputs,hidden2=inputs"};
  expect_to_survive_deaths(tensor, 3, 5, 1);
}

TEST_F(CutTeam, GoesBackWhenNobodyHasAPartAnyMore) {
  const RunConfig with = config(kTwoByStages);
  const CutRun undisturbed = train(with, {});
  const double loss = *undisturbed.ends[0].summary.last.test_loss;
  for (const int apart : {0, 1, 5, 30}) {
    const std::map<int, int> deaths = {{1, undisturbed.ends[1].posts / 2}, {3, undisturbed.ends[3].posts / 2 + apart}};
    const CutRun run = train(with, deaths);
    ASSERT_NE(run.leader(), nullptr);
    expect_whole(run, deaths, run.leader()->summary.workers_at_end, loss, fmt::format("{} messages apart", apart));
  }
}

}  // namespace
}  // namespace distbelief
