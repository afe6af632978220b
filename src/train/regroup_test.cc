// Members of a team that die at every moment of a step, and the others that go on: ranks are threads, and a death is a
// fabric that ends all exchanges at its n-th message.
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "data/test_folder.h"
#include "metrics/metrics_log.h"
#include "train/trainer.h"
#include "transport/local/local_fabric.h"

namespace distbelief {
namespace {

constexpr int kWorkers = 3;
constexpr std::int64_t kSamples = 50;  // no batch divides it
constexpr std::int64_t kEpochs = 2;
constexpr std::int64_t kBatch = 12;

/// A view for each death, as a coordinator would issue it.
class TestViews {
 public:
  explicit TestViews(int members) : fabrics_(static_cast<std::size_t>(members)) {
    for (int rank = 0; rank < members; ++rank) {
      members_.insert(rank);
      formed_[rank] = 1;
    }
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
    fabrics_[static_cast<std::size_t>(rank.value)] = nullptr;
    if (members_.erase(rank.value) > 0) {
      end_views_of_others([this](Rank other) { return formed_[other.value] + 1; });
    }
  }
  void die(Rank rank) {
    const std::scoped_lock lock(mutex_);
    members_.erase(rank.value);
    dead_.insert(rank.value);
    for (Fabric* fabric : fabrics_) {
      if (fabric != nullptr && fabric->rank() != rank) {
        fabric->lose(rank, "died");
      }
    }
    end_views_of_others([](Rank /*other*/) { return 1U; });
  }
  bool is_dead(Rank rank) {
    const std::scoped_lock lock(mutex_);
    return dead_.contains(rank.value);
  }
  std::optional<NextTeam> next(Rank self, std::uint32_t epoch) {
    std::unique_lock lock(mutex_);
    const bool came =
        changed_.wait_for(lock, std::chrono::seconds(30), [&] { return view_ > epoch || dead_.contains(self.value); });
    if (!came || dead_.contains(self.value)) {
      return std::nullopt;
    }
    NextTeam team = {.epoch = view_, .members = {}};
    for (const int rank : members_) {
      team.members.push_back(Rank{rank});
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
        for (const std::uint32_t epoch : Group::tag_epochs(view)) {
          fabric->end_epoch(epoch, "a member is gone");
        }
      }
    }
    ++view_;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Fabric*> fabrics_;
  std::set<int> members_;
  std::set<int> dead_;
  std::map<int, std::uint32_t> formed_;  // by rank
  std::uint32_t view_ = 1;
};

/// Dies when its `last`-th message is posted: nothing of it goes out or comes in any more.
class DyingFabric : public Fabric {
 public:
  DyingFabric(std::unique_ptr<Fabric> fabric, TestViews& views, int last)
      : fabric_(std::move(fabric)), views_(views), last_(last) {}
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
  int posts_ = 0;
};

struct Died {};

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
    config.data = fmt::format("synthetic:classes=3,shape=1x4x4,samples={},test=20,seed=3", kSamples);
    config.batch = kBatch;
    config.epochs = kEpochs;
    config.threads = 1;
    config.workers = kWorkers;
    config.log_every = 1;
    config.checkpoint_every = 1000;  // only those that are needed: each waits for the disk
    config.lr = 0.02;
    config.algorithm = GetParam();
    if (config.algorithm == "averaging" || config.algorithm == "gossip") {
      config.batch = kBatch / kWorkers;
    }
    if (config.algorithm == "averaging") {
      config.average_every = 3;
    }
    return config;
  }

  /// Trains; `deaths`: at which message a rank dies. What became of each.
  std::vector<Ended> train(const std::map<int, int>& deaths, const RunConfig& with) {
    folder.emplace();
    RunConfig config = with;
    config.out = (folder->path() / "run").string();
    const LockedFolder locked = prepare_run(config, {});
    std::vector<std::unique_ptr<Fabric>> fabrics = make_local_fabrics(kWorkers);
    TestViews views(kWorkers);
    std::vector<std::unique_ptr<DyingFabric>> dying;
    for (int rank = 0; rank < kWorkers; ++rank) {
      const auto death = deaths.find(rank);
      dying.push_back(std::make_unique<DyingFabric>(std::move(fabrics[static_cast<std::size_t>(rank)]), views,
                                                    death == deaths.end() ? -1 : death->second));
      views.add(*dying.back());
    }
    std::vector<Ended> ended(kWorkers);
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < kWorkers; ++rank) {
      threads.emplace_back([&, rank] {
        DyingFabric& fabric = *dying[static_cast<std::size_t>(rank)];
        Group group(fabric, all_ranks(fabric), 1);
        const Rank self{rank};
        const Team team = {.group = &group,
                           .patience = std::chrono::minutes(1),
                           .sharers = kWorkers,
                           .next = [&, self](std::uint32_t epoch) { return views.next(self, epoch); },
                           .formed =
                               [&, self](std::uint32_t epoch) {
                                 if (views.is_dead(self)) {
                                   throw Died();  // the dead write no files
                                 }
                                 views.formed(self, epoch);
                               },
                           .news_of =
                               [&](Rank lost) {
                                 return views.is_dead(lost)
                                            ? std::optional(MemberNews{fmt::format("rank {}", lost.value), "died"})
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
    for (int rank = 0; rank < kWorkers; ++rank) {
      const Ended& one = ended[static_cast<std::size_t>(rank)];
      if (deaths.contains(rank)) {
        EXPECT_EQ(one.summary.status, "lost");
        continue;
      }
      EXPECT_EQ(one.summary.status, "finished") << one.summary.problem;
      leader = leader == nullptr ? &one : leader;
    }
    ASSERT_NE(leader, nullptr);
    EXPECT_TRUE(leader->leads);
    const RunSummary& summary = leader->summary;
    const std::uint64_t all = kSamples * kEpochs;
    EXPECT_EQ(summary.samples, (SampleAudit{.leased = all, .applied = all}));
    EXPECT_EQ(summary.workers, kWorkers);
    int left = kWorkers - static_cast<int>(deaths.size());
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
  for (int victim = 0; victim < kWorkers; ++victim) {
    const int posts = undisturbed[static_cast<std::size_t>(victim)].posts;
    // Every message of a step or more in the middle, and some everywhere else: the first join, ends of epochs, the
    // last.
    std::set<int> moments;
    for (int i = 0; i < 12; ++i) {
      moments.insert(posts / 2 + i);
      moments.insert(1 + i * (posts - 1) / 11);
    }
    for (const int moment : moments) {
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

TEST_P(Regrouping, TwoDeathsLeaveOneThatEndsTheRun) {
  const std::vector<Ended> undisturbed = train({}, config());
  for (int survivor = 0; survivor < kWorkers; ++survivor) {
    for (const int apart : {0, 1, 5, 60}) {
      std::map<int, int> deaths;
      for (int victim = 0; victim < kWorkers; ++victim) {
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
    EXPECT_EQ(summary.samples.applied, static_cast<std::uint64_t>(kSamples * kEpochs));
    EXPECT_EQ(summary.batch, synchronous && rule == "global" ? kBatch : kBatch * 2 / 3);
    EXPECT_EQ(summary.batch_per_worker, synchronous && rule == "global" ? kBatch / 2 : kBatch / 3);
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
