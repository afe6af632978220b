#include "compare/contestants.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace distbelief {
namespace {

using testing::AllOf;
using testing::HasSubstr;

RunConfig common(std::int64_t workers = 2) {
  RunConfig config;
  config.workers = workers;
  return config;
}

std::string refusal(const std::string& list, const RunConfig& config = common()) {
  try {
    (void)contestants_of(list, config);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(Contestants, AllAlgorithmsGoTogetherWithNothingElseSaid) {
  const std::vector<Contestant> all = contestants_of(all_algorithms(), common());
  ASSERT_EQ(all.size(), 10);
  EXPECT_EQ(all.front().label, "local");
  EXPECT_EQ(all.back().label, "sandblaster");
  for (const Contestant& contestant : all) {
    EXPECT_EQ(contestant.config.algorithm, contestant.label);
    EXPECT_EQ(contestant.config.workers, is_of_one_process(contestant.label) ? 1 : 2);
  }
}

TEST(Contestants, WhatIsForSomeAlgorithmsIsGivenToThoseOnly) {
  RunConfig config = common();
  config.n = 2;
  config.n_push = 4;
  config.max_staleness = 9;
  config.backup_workers = 1;
  config.optimizer = "adagrad";
  const std::vector<Contestant> all = contestants_of("sync,async,downpour,softsync,sandblaster", config);
  EXPECT_EQ(all[0].config.backup_workers, 1);
  EXPECT_EQ(all[0].config.max_staleness, -1);
  EXPECT_EQ(all[1].config.backup_workers, 0);
  EXPECT_EQ(all[1].config.n_push, 1);
  EXPECT_EQ(all[1].config.max_staleness, 9);
  EXPECT_EQ(all[2].config.n_push, 4);
  EXPECT_EQ(all[2].config.n, 1);
  EXPECT_EQ(all[3].config.n, 2);
  EXPECT_EQ(all[3].config.optimizer, "adagrad");
  EXPECT_EQ(all[4].config.optimizer, "sgd");
}

TEST(Contestants, OptionsOfTheirOwnComeOnTop) {
  const std::vector<Contestant> both = contestants_of("downpour,downpour:n-push=8:lr=0.02", common());
  EXPECT_EQ(both[0].config.n_push, 1);
  EXPECT_EQ(both[1].config.n_push, 8);
  EXPECT_EQ(both[1].config.lr, 0.02);
  EXPECT_EQ(both[1].label, "downpour:n-push=8:lr=0.02");
  EXPECT_EQ(both[1].folder, "downpour-n-push-8-lr-0.02");
}

TEST(Contestants, OneProcessHasTheThreadsOfAllWorkers) {
  RunConfig config = common(3);
  config.threads = 2;
  const std::vector<Contestant> both = contestants_of("local,allreduce", config);
  EXPECT_EQ(both[0].config.threads, 6);
  EXPECT_EQ(both[0].config.workers, 1);
  EXPECT_EQ(both[1].config.threads, 2);
  EXPECT_EQ(both[1].config.workers, 3);
}

TEST(Contestants, WithoutANumberOfWorkersThereAreTwo) {
  EXPECT_EQ(contestants_of("allreduce", common(0))[0].config.workers, 2);
}

TEST(Contestants, WhatDoesNotExistIsRefusedWithWhatDoes) {
  EXPECT_THAT(refusal("local,downpuor"), AllOf(HasSubstr("there is no algorithm 'downpuor'"),
                                               HasSubstr("did you mean 'downpour'"), HasSubstr("gossip")));
  EXPECT_THAT(refusal("local,"), HasSubstr("there is no algorithm ''"));
  EXPECT_THAT(refusal("downpour:n-pish=2"), AllOf(HasSubstr("n-pish"), HasSubstr("n-push")));
  EXPECT_THAT(refusal("downpour:fast"), HasSubstr("expected ALGORITHM:KEY=VALUE, got 'fast'"));
  EXPECT_THAT(refusal("downpour:lr=fast"), HasSubstr("expected a number above 0, got 'fast'"));
}

TEST(Contestants, WhatDoesNotGoTogetherIsRefusedByName) {
  RunConfig config = common();
  config.momentum = 0.9;
  EXPECT_THAT(refusal("local,hogwild", config),
              AllOf(HasSubstr("--algorithms hogwild"), HasSubstr("momentum"), HasSubstr("hogwild:KEY=VALUE")));
  EXPECT_EQ(refusal("local,hogwild:momentum=0", config), "");
  EXPECT_THAT(refusal("sync,sync"), HasSubstr("'sync' is there twice"));
  EXPECT_THAT(refusal("local:seed=2"), HasSubstr("'seed' is the same for all runs"));
  EXPECT_THAT(refusal("softsync:n=5"), HasSubstr("--algorithms softsync:n=5: --n 5: with --workers 2"));
}

}  // namespace
}  // namespace distbelief
