// What every strategy promises, on ranks that are threads.

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "strategy/test_member.h"

namespace distbelief {
namespace {

struct Trained {
  std::vector<double> losses;
  std::vector<float> values;
};

constexpr int kSteps = 20;

std::vector<Trained> train_group(int ranks, const TestOptions& options) {
  std::vector<Trained> all(static_cast<std::size_t>(ranks));
  run_ranks(ranks, [&](Fabric& fabric) {
    TestMember member(fabric, options);
    Trained& trained = all[static_cast<std::size_t>(member.position())];
    trained.losses = member.train(kSteps);
    trained.values = member.values();
  });
  return all;
}

Trained train_local(const TestOptions& options = {}) {
  TestMember member(options);
  std::vector<double> losses = member.train(kSteps);
  return {std::move(losses), member.values()};
}

void expect_close(const Trained& found, const Trained& wanted, const std::string& what) {
  ASSERT_EQ(found.losses.size(), wanted.losses.size());
  for (std::size_t step = 0; step < wanted.losses.size(); ++step) {
    EXPECT_NEAR(found.losses[step], wanted.losses[step], 1e-4 * wanted.losses[step]) << what << ", step " << step;
  }
}

/// The strategies that do what one process does, step for step.
class Synchronous : public testing::TestWithParam<const char*> {
 protected:
  TestOptions options() const { return {.algorithm = GetParam()}; }
};
INSTANTIATE_TEST_SUITE_P(All, Synchronous, testing::Values("allreduce", "sync"),
                         [](const auto& name) { return std::string(name.param); });

TEST_P(Synchronous, GivesTheLossesOfOneProcessAtAnyNumberOfWorkers) {
  const Trained local = train_local();
  for (const int ranks : {1, 2, 3, 4, 7}) {
    expect_close(train_group(ranks, options())[0], local, std::to_string(ranks) + " workers");
  }
}

TEST_P(Synchronous, GivesTheLossesOfOneProcessWhateverTheSharesOfWorkers) {
  const Trained local = train_local();
  const std::vector<std::vector<std::int64_t>> all_shares = {{14, 1, 1}, {1, 5, 10}, {8, 7, 1}};
  for (const std::vector<std::int64_t>& shares : all_shares) {
    for (const int threads : {1, 2}) {
      TestOptions uneven = options();
      uneven.shares = shares;
      uneven.threads = threads;
      const std::vector<Trained> all = train_group(3, uneven);
      expect_close(all[0], local, "shares of the first: " + std::to_string(shares[0]));
      EXPECT_EQ(all[1].values, all[0].values);
      EXPECT_EQ(all[2].values, all[0].values);
      EXPECT_EQ(train_group(3, uneven)[1].values, all[1].values);
    }
  }
}

TEST_P(Synchronous, WhatAStepHasCostIsToldToAllWithTheNext) {
  run_ranks(3, [&](Fabric& fabric) {
    TestMember member(fabric, options());
    ASSERT_EQ(member.strategy->join().outcome, StepReport::Outcome::stepped);
    member.strategy->expect_rows(kBatch / 2);
    const auto number = [](int position) { return static_cast<std::uint64_t>(position) * 10; };
    const StepCosts own = {.rows = 5, .computed = number(member.position()), .loaded = 2, .took = 3, .host = 4};
    const StepReport report = member.strategy->step(member.samples, {.update = {.rate = 0.1F}, .costs = own});
    ASSERT_EQ(report.outcome, StepReport::Outcome::stepped);
    ASSERT_EQ(report.costs.size(), 3U);
    for (int position = 0; position < 3; ++position) {
      EXPECT_EQ(report.costs[static_cast<std::size_t>(position)],
                (StepCosts{.rows = 5, .computed = number(position), .loaded = 2, .took = 3, .host = 4}));
    }
  });
}

TEST_P(Synchronous, LeavesAllWorkersWithTheSameBits) {
  for (const bool batch_norm : {false, true}) {
    TestOptions with = options();
    with.batch_norm = batch_norm;
    const std::vector<Trained> all = train_group(3, with);
    for (const Trained& one : all) {
      EXPECT_EQ(one.values, all[0].values);
      EXPECT_EQ(one.losses, all[0].losses);
    }
  }
}

TEST_P(Synchronous, GivesTheSameBitsAgain) {
  EXPECT_EQ(train_group(4, options())[2].values, train_group(4, options())[2].values);
  TestOptions lanes = options();
  lanes.batch_norm = true;
  lanes.threads = 2;
  EXPECT_EQ(train_group(2, lanes)[1].values, train_group(2, lanes)[1].values);
}

TEST_P(Synchronous, AccumulationGivesTheLossesOfWholeBatches) {
  const Trained whole = train_local();
  for (const std::int64_t parts : {2, 3, 5}) {  // of shares of 5 or 6 rows, 2 or 1 in the last batch
    for (const int threads : {1, 2}) {
      TestOptions parted = options();
      parted.micro_batches = parts;
      parted.threads = threads;
      expect_close(train_group(3, parted)[0], whole, std::to_string(parts) + " parts");
    }
  }
}

TEST_P(Synchronous, ANanInOneWorkersSamplesStopsAllAndNamesTheLayer) {
  run_ranks(3, [&](Fabric& fabric) {
    TestMember member(fabric, options());
    ASSERT_EQ(member.strategy->join().outcome, StepReport::Outcome::stepped);
    member.samples.poisoned_sample = 20;  // in the second batch, of one worker only
    ASSERT_EQ(member.step().outcome, StepReport::Outcome::stepped);
    const std::vector<float> before = member.values();
    const StepReport report = member.step();
    EXPECT_EQ(report.outcome, StepReport::Outcome::diverged);
    EXPECT_EQ(report.culprit, "layer 'dense1'");
    EXPECT_EQ(before, member.values());
    EXPECT_EQ(member.samples.dropped_samples, static_cast<std::size_t>(kBatch));
  });
}

TEST_P(Synchronous, AWorkerThatDiesLeavesTheParametersOfTheOthersAsTheyWere) {
  run_ranks(3, [&](Fabric& fabric) {
    TestMember member(fabric, options());
    ASSERT_EQ(member.strategy->join().outcome, StepReport::Outcome::stepped);
    ASSERT_EQ(member.step().outcome, StepReport::Outcome::stepped);
    if (member.position() == 1) {
      return;
    }
    const std::vector<float> before = member.values();
    const StepReport report = member.step();
    EXPECT_EQ(report.outcome, StepReport::Outcome::group_lost);
    EXPECT_NE(report.culprit.find("left"), std::string::npos) << report.culprit;
    EXPECT_FALSE(report.completed);
    EXPECT_EQ(before, member.values());
  });
}

/// All strategies of a group, those with a choice in each way.
class AnyStrategy : public testing::TestWithParam<TestOptions> {};
INSTANTIATE_TEST_SUITE_P(
    All, AnyStrategy,
    testing::Values(TestOptions{.algorithm = "allreduce"}, TestOptions{.algorithm = "sync"},
                    TestOptions{.algorithm = "averaging"}, TestOptions{.algorithm = "averaging", .average_every = 2},
                    TestOptions{.algorithm = "averaging", .only_for_show = true},
                    TestOptions{.algorithm = "gossip", .quorum = 0}, TestOptions{.algorithm = "gossip", .quorum = 1},
                    TestOptions{.algorithm = "gossip", .quorum = 2}),
    [](const auto& given) {
      const TestOptions& options = given.param;
      std::string name = options.algorithm;
      if (name == "averaging") {
        name += options.only_for_show ? "AtTheEnd" : options.average_every == 0 ? "EachEpoch" : "EverySecondStep";
      } else if (name == "gossip") {
        name += "Quorum" + std::to_string(options.quorum);
      }
      return name;
    });

TEST_P(AnyStrategy, EveryWorkerCountsEverySampleOfAnEpochOnce) {
  run_ranks(3, [&](Fabric& fabric) {
    TestMember member(fabric, GetParam());
    ASSERT_EQ(member.strategy->join().outcome, StepReport::Outcome::stepped);
    for (int epoch = 1; epoch <= 3; ++epoch) {
      EXPECT_EQ(member.train_epoch().rows, kSamples);
      EXPECT_TRUE(member.samples.exactly(epoch)) << "epoch " << epoch;
      EXPECT_EQ(member.samples.dropped_samples, 0U);
    }
  });
}

TEST_P(AnyStrategy, AfterSettlingAllHaveTheSameBitsAndLossesHaveFallen) {
  std::vector<std::vector<float>> values(3);
  std::vector<double> first(3), last(3);
  run_ranks(3, [&](Fabric& fabric) {
    TestMember member(fabric, GetParam());
    ASSERT_EQ(member.strategy->join().outcome, StepReport::Outcome::stepped);
    const auto place = static_cast<std::size_t>(member.position());
    first[place] = member.train_epoch().loss / kSamples;
    for (int epoch = 0; epoch < 15; ++epoch) {
      last[place] = member.train_epoch().loss / kSamples;
    }
    values[place] = member.values();
    EXPECT_TRUE(member.position() != 0 || member.strategy->holds_state());
  });
  EXPECT_EQ(values[1], values[0]);
  EXPECT_EQ(values[2], values[0]);
  EXPECT_LT(last[0], 0.7 * first[0]);
}

TEST_P(AnyStrategy, WhenOneIsAskedToStopAllHearOfItAfterTheSameStep) {
  std::vector<int> heard(3, -1);
  run_ranks(3, [&](Fabric& fabric) {
    TestMember member(fabric, GetParam());
    ASSERT_EQ(member.strategy->join().outcome, StepReport::Outcome::stepped);
    for (int step = 0; heard[static_cast<std::size_t>(member.position())] < 0; ++step) {
      const StepReport report = member.step(member.position() == 2 && step >= 3);
      if (report.outcome == StepReport::Outcome::end_of_epoch) {
        ASSERT_EQ(member.strategy->settle(member.samples).outcome, StepReport::Outcome::stepped);
        continue;
      }
      ASSERT_EQ(report.outcome, StepReport::Outcome::stepped) << report.culprit;
      if (report.stop) {
        heard[static_cast<std::size_t>(member.position())] = step;
      }
    }
    EXPECT_EQ(member.strategy->settle(member.samples).outcome, StepReport::Outcome::stepped);
  });
  EXPECT_EQ(heard[0], heard[2]);
  EXPECT_EQ(heard[1], heard[2]);
  EXPECT_GE(heard[2], 3);
}

TEST_P(AnyStrategy, ANanStopsAllAfterTheSameStepAndEachNamesTheLayer) {
  std::vector<int> ended(3, -1);
  run_ranks(3, [&](Fabric& fabric) {
    TestMember member(fabric, GetParam());
    ASSERT_EQ(member.strategy->join().outcome, StepReport::Outcome::stepped);
    member.samples.poisoned_sample = 20;  // one worker's
    StepReport report;
    int steps = 0;
    while (report.outcome == StepReport::Outcome::stepped) {
      ++steps;
      report = member.step();
      if (report.outcome == StepReport::Outcome::end_of_epoch) {
        report = member.strategy->settle(member.samples);
      }
    }
    ended[static_cast<std::size_t>(member.position())] = steps;
    EXPECT_EQ(report.outcome, StepReport::Outcome::diverged);
    EXPECT_FALSE(std::isfinite(report.sums.loss));
    EXPECT_EQ(report.culprit, "layer 'dense1'");
  });
  EXPECT_EQ(ended[0], ended[1]);
  EXPECT_EQ(ended[0], ended[2]);
}

TEST_P(AnyStrategy, AWorkerThatDiesIsNamedByTheOthers) {
  run_ranks(3, [&](Fabric& fabric) {
    TestMember member(fabric, GetParam());
    ASSERT_EQ(member.strategy->join().outcome, StepReport::Outcome::stepped);
    StepReport report = member.step();
    if (member.position() == 1) {
      return;
    }
    while (report.outcome == StepReport::Outcome::stepped) {
      report = member.step();
      if (report.outcome == StepReport::Outcome::end_of_epoch) {
        report = member.strategy->settle(member.samples);
      }
    }
    EXPECT_EQ(report.outcome, StepReport::Outcome::group_lost);
    EXPECT_NE(report.culprit.find("left"), std::string::npos) << report.culprit;
  });
}

TEST_P(AnyStrategy, GoesOnFromWhatTheFirstMemberKept) {
  const bool same_bits = !GetParam().only_for_show && (GetParam().algorithm != "gossip" || GetParam().quorum == 2);
  std::vector<float> whole, parts;
  StateKeeper keeper;
  std::vector<float> kept;
  run_ranks(3, [&](Fabric& fabric) {
    TestMember member(fabric, GetParam());
    ASSERT_EQ(member.strategy->join().outcome, StepReport::Outcome::stepped);
    (void)member.train_epoch();
    if (member.position() == 0) {
      keeper.floats("values", member.replica.values());
      member.strategy->visit_state(keeper);
      kept = member.values();
    }
    (void)member.train_epoch();
    if (member.position() == 0) {
      whole = member.values();
    }
  });
  keeper.gives_back = true;
  run_ranks(3, [&](Fabric& fabric) {
    TestMember member(fabric, GetParam());
    if (member.position() == 0) {
      keeper.floats("values", member.replica.values());
      member.strategy->visit_state(keeper);
    }
    ASSERT_EQ(member.strategy->join().outcome, StepReport::Outcome::stepped);
    EXPECT_EQ(member.values(), kept);
    (void)member.samples.next();  // its clock is at epoch 0, which the state has left behind
    while (member.samples.next() != nullptr) {
    }
    (void)member.train_epoch();
    if (member.position() == 0) {
      parts = member.values();
    }
  });
  EXPECT_TRUE(!same_bits || parts == whole);
}

TEST(Accumulation, GivesTheLossesOfWholeBatchesInOneProcess) {
  for (const std::int64_t parts : {2, 3, 16, 40}) {
    expect_close(train_local({.micro_batches = parts}), train_local(), std::to_string(parts) + " parts");
  }
}

}  // namespace
}  // namespace distbelief
