#include "train/run_change.h"

#include <gtest/gtest.h>

namespace distbelief {
namespace {

RunConfig all_reduce() {
  RunConfig config;
  config.algorithm = "allreduce";
  config.workers = 2;
  return config;
}

RunConfig downpour() {
  RunConfig config;
  config.algorithm = "downpour";
  config.workers = 4;
  config.servers = 2;
  config.n_push = 3;
  return config;
}

RunConfig cut() {
  RunConfig config = all_reduce();
  config.stages = 2;
  config.tensor = 1;
  return config;
}

TEST(ChangeText, SaysWhatWasOnlyWhereSomethingWas) {
  EXPECT_EQ(change_text(all_reduce(), all_reduce()), "");
  EXPECT_EQ(change_text(all_reduce(), downpour()),
            "algorithm downpour (allreduce before), workers 4 (2), servers 2, n-push 3");
  EXPECT_EQ(change_text(all_reduce(), cut()), "stages 2");
  EXPECT_EQ(change_text(downpour(), cut()), "algorithm allreduce (downpour before), workers 2 (4), stages 2");
}

TEST(ChangeText, SaysThatANetworkIsNotCutAnyMore) {
  EXPECT_EQ(change_text(cut(), all_reduce()), "stages 1 (2 before)");
}

TEST(ChangeText, SaysBeforeOnceAtTheFirstThatWas) {
  RunConfig more = cut();
  more.workers = 4;
  more.tensor = 2;
  more.batch = all_reduce().batch * 2;
  EXPECT_EQ(change_text(cut(), more),
            fmt::format("workers 4 (2 before), tensor 2, batch {} ({})", more.batch, all_reduce().batch));
  RunConfig servers = downpour();
  servers.servers = 3;
  EXPECT_EQ(change_text(downpour(), servers), "servers 3 (2 before)");
}

}  // namespace
}  // namespace distbelief
