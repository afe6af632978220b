#include "train/worker_activity.h"

#include <gtest/gtest.h>

namespace distbelief {
namespace {

using Activity = WorkerActivity::Kind;

TEST(WorkerActivity, WhoComputesDoesNotWaitAndWhoWaitsSaysSo) {
  WorkerActivity activity;
  activity.begin(Activity::stepping, 211);
  EXPECT_EQ(activity.progress().operation, "waiting for others in step 212");
  EXPECT_TRUE(activity.progress().waits_for_others);
  {
    const ComputeWatch::Span span(&activity.compute());
    EXPECT_EQ(activity.progress().operation, "computing step 212");
    EXPECT_FALSE(activity.progress().waits_for_others);
  }
  EXPECT_TRUE(activity.progress().waits_for_others);
  EXPECT_GT(activity.compute().seconds(), 0);
}

TEST(WorkerActivity, OnlyWaitingForOthersIsWaiting) {
  WorkerActivity activity;
  for (const Activity kind : {Activity::starting, Activity::loading, Activity::evaluating, Activity::writing_checkpoint,
                              Activity::serving, Activity::ending}) {
    activity.begin(kind, 7);
    EXPECT_FALSE(activity.progress().waits_for_others) << activity.progress().operation;
  }
  for (const Activity kind : {Activity::meeting, Activity::gathering}) {
    activity.begin(kind, 7);
    EXPECT_TRUE(activity.progress().waits_for_others) << activity.progress().operation;
  }
  EXPECT_EQ(activity.progress().step, 7);
}

}  // namespace
}  // namespace distbelief
