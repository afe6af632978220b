#include "exec/compute_watch.h"

#include <gtest/gtest.h>

#include <thread>

namespace distbelief {
namespace {

TEST(ComputeWatch, WhatOthersAreWaitedForIsNotCounted) {
  ComputeWatch watch;
  double waited = 0;
  const Clock::time_point began = Clock::now();
  {
    const ComputeWatch::Span span(&watch);
    EXPECT_TRUE(watch.computing());
    {
      const ComputeWatch::Pause pause(&watch);
      EXPECT_FALSE(watch.computing());
      const double before = watch.seconds();
      const Clock::time_point paused = Clock::now();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      waited = seconds_since(paused);
      EXPECT_EQ(watch.seconds(), before);
    }
    EXPECT_TRUE(watch.computing());
  }
  EXPECT_GT(watch.seconds(), 0);
  EXPECT_LE(watch.seconds(), seconds_since(began) - waited + 1e-9);
  EXPECT_FALSE(watch.computing());
}

TEST(ComputeWatch, NobodyPausesWhatDoesNotCompute) {
  ComputeWatch watch;
  { const ComputeWatch::Pause pause(&watch); }
  EXPECT_FALSE(watch.computing());
  EXPECT_EQ(watch.seconds(), 0);
}

}  // namespace
}  // namespace distbelief
