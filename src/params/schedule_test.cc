#include "params/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace distbelief {
namespace {

TEST(Schedule, ConstantStays) {
  const Schedule schedule = make_schedule({.rate = 0.5});
  EXPECT_EQ(schedule.rate(0, 100), 0.5F);
  EXPECT_EQ(schedule.rate(99, 100), 0.5F);
}

TEST(Schedule, StepFallsAfterEachSoManyEpochs) {
  const Schedule schedule =
      make_schedule({.name = "step", .rate = 0.8, .steps_per_epoch = 10, .step_every = 2, .gamma = 0.5});
  EXPECT_FLOAT_EQ(schedule.rate(0, 100), 0.8F);
  EXPECT_FLOAT_EQ(schedule.rate(19, 100), 0.8F);
  EXPECT_FLOAT_EQ(schedule.rate(20, 100), 0.4F);
  EXPECT_FLOAT_EQ(schedule.rate(40, 100), 0.2F);
}

TEST(Schedule, StepFallsAtMilestones) {
  const Schedule schedule =
      make_schedule({.name = "step", .rate = 1, .steps_per_epoch = 10, .milestones = {3, 4.5}, .gamma = 0.1});
  EXPECT_FLOAT_EQ(schedule.rate(29, 100), 1.0F);
  EXPECT_FLOAT_EQ(schedule.rate(30, 100), 0.1F);
  EXPECT_FLOAT_EQ(schedule.rate(44, 100), 0.1F);
  EXPECT_FLOAT_EQ(schedule.rate(45, 100), 0.01F);
}

TEST(Schedule, CosineGoesFromTheRateToItsFloor) {
  const Schedule schedule = make_schedule({.name = "cosine", .rate = 1, .floor = 0.2});
  EXPECT_FLOAT_EQ(schedule.rate(0, 100), 1.0F);
  EXPECT_FLOAT_EQ(schedule.rate(25, 100), 0.2F + 0.8F * 0.85355339F);
  EXPECT_FLOAT_EQ(schedule.rate(50, 100), 0.6F);
  EXPECT_FLOAT_EQ(schedule.rate(100, 100), 0.2F);
  EXPECT_FLOAT_EQ(schedule.rate(150, 100), 0.2F);
}

TEST(Schedule, WarmsUpByEqualPartsThenFollowsItsShape) {
  const Schedule in_steps = make_schedule({.name = "cosine", .rate = 1, .warmup_steps = 4});
  EXPECT_FLOAT_EQ(in_steps.rate(0, 104), 0.25F);
  EXPECT_FLOAT_EQ(in_steps.rate(3, 104), 1.0F);
  EXPECT_FLOAT_EQ(in_steps.rate(4, 104), 1.0F);
  EXPECT_FLOAT_EQ(in_steps.rate(54, 104), 0.5F);
  const Schedule in_epochs = make_schedule({.rate = 1, .steps_per_epoch = 8, .warmup_epochs = 0.5});
  EXPECT_FLOAT_EQ(in_epochs.rate(1, 104), 0.5F);
  EXPECT_FLOAT_EQ(in_epochs.rate(4, 104), 1.0F);
}

TEST(Schedule, ARunShorterThanItsWarmUpIsAllWarmUp) {
  EXPECT_FLOAT_EQ(make_schedule({.name = "cosine", .rate = 1, .warmup_steps = 10}).rate(4, 5), 0.5F);
}

TEST(Schedule, RefusesWhatCannotBeMeant) {
  EXPECT_THROW(make_schedule({.rate = 0}), InputError);
  EXPECT_THROW(make_schedule({.name = "step"}), InputError);
  EXPECT_THROW(make_schedule({.name = "step", .step_every = 1, .milestones = {2}}), InputError);
  EXPECT_THROW(make_schedule({.name = "cosine", .rate = 0.1, .floor = 0.2}), InputError);
  EXPECT_THROW(make_schedule({.warmup_steps = 1, .warmup_epochs = 1}), InputError);
  try {
    make_schedule({.name = "cosin"});
    FAIL();
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(),
                 "unknown learning-rate schedule 'cosin'; expected one of constant, step, cosine; did you "
                 "mean 'cosine'?");
  }
}

}  // namespace
}  // namespace distbelief
