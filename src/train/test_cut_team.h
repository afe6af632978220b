#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "data/test_folder.h"
#include "metrics/metrics_log.h"
#include "train/team_run.h"
#include "train/test_moments.h"
#include "train/test_views.h"
#include "transport/local/local_fabric.h"
#include "transport/locked/locked_fabric.h"

namespace distbelief {

inline constexpr std::int64_t kCutSamples = 40;  // no batch divides it
inline constexpr std::int64_t kCutEpochs = 2;
inline constexpr const char* kUnused = "was not needed";  // a standby

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

/// Teams whose network is cut: ranks are threads.
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
    if (config.algorithm == "averaging") {
      config.average_every = 2;
    }
    config.log_every = 1;
    config.checkpoint_every = grid.replicas > 1 ? 1000 : 3;  // each waits for the disk
    config.lr = 0.02;
    return config;
  }

  /// `deaths`: at which message a rank dies. `wishes`: what is wished, at which message of rank 0.
  CutRun train(const RunConfig& with, const std::map<int, int>& deaths, int standbys = 0,
               const std::map<int, TestViews::Wish>& wishes = {}) {
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
      const auto posting = [&views, &wishes, rank](int post) {
        if (const auto wish = wishes.find(post); rank == 0 && wish != wishes.end()) {
          views.wish(wish->second);
        }
      };
      auto made =
          std::make_unique<DyingFabric>(std::move(fabric), views, death == deaths.end() ? -1 : death->second, posting);
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
          Team team = {.group = &group,
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
                             return std::optional(
                                 MemberNews{fmt::format("rank {}", other.value), views.is_dead(other) ? "died" : ""});
                           },
                       .fenced = [&, self] { return views.is_dead(self); }};
          team.newest = [&, self] { return views.newest(self); };
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

  /// The run is what it would have been. `left`: workers who train at its end. No `wanted_loss`: it depends on how many
  /// copies there are.
  void expect_whole(const CutRun& run, const std::map<int, int>& deaths, int left, std::optional<double> wanted_loss,
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
    std::set<std::string> left_before;
    for (const TeamEvent& event : summary.events) {
      if (event.what == TeamEvent::What::lost) {
        EXPECT_TRUE(lost.insert(event.who).second) << event.who;
      } else if (event.what == TeamEvent::What::left) {
        left_before.insert(event.who);
      }
    }
    for (const auto& [rank, moment] : deaths) {  // who died before it had a part was never there
      const std::string who = fmt::format("rank {}", rank);
      EXPECT_TRUE(rank >= summary.workers || lost.contains(who) || left_before.contains(who));
    }
    EXPECT_LE(lost.size(), deaths.size());
    EXPECT_TRUE(std::filesystem::exists(summary.folder / "model.safetensors"));
    EXPECT_TRUE(std::filesystem::exists(summary.folder / "summary.json"));
    if (wanted_loss) {
      EXPECT_NEAR(*summary.last.test_loss, *wanted_loss, 1e-4);
    }
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
    const std::optional<double> loss = loss_of(undisturbed, grid);
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
        const std::string what =
            fmt::format("{} {}: rank {} died at message {} of {}", grid.algorithm, grid.name, victim, moment, posts);
        expect_whole(run, deaths, left, loss, what);
        for (const std::string& note : run.notes) {  // as long as others have each part
          EXPECT_TRUE(grid.replicas == 1 || note.find("back to") == note.npos || note.find(", 0 steps") != note.npos)
              << what << ": " << note;
        }
      }
    }
  }

  /// Where a step is of all copies together.
  static std::optional<double> loss_of(const CutRun& run, const CutGrid& grid) {
    const std::string algorithm = grid.algorithm;
    return algorithm == "averaging" || algorithm == "gossip"
               ? std::nullopt
               : std::optional(run.ends[0].summary.last.test_loss.value_or(-1));
  }

  std::optional<TestFolder> folder;
};

inline constexpr CutGrid kTwoByStages = {"2 copies of 2 stages", 2, 2, 1, "hidden2", ""};
inline constexpr CutGrid kTwoByTensor = {"2 copies over 2 workers", 2, 1, 2, "", "hidden1=outputs,hidden2=inputs"};

}  // namespace distbelief
