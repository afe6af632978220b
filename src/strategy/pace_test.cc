#include "strategy/pace.h"

#include <gtest/gtest.h>

namespace distbelief {
namespace {

/// A worker that computes a batch for a second, and waits so long for each exchange and each lease.
struct PacedWorker {
  Pace pace;
  Pace::Times times = {};

  void work(int batches, double exchange, double lease) {
    for (int i = 0; i < batches; ++i) {
      const double links = exchange / pace.batches();
      const double leases = lease / static_cast<double>(pace.batches() * pace.units_of_lease());
      times.all += 1 + links + leases;
      times.links += links;
      times.leases += leases;
      pace.note(times);
    }
  }
};

TEST(Pace, WhoWaitsForLinksExchangesLessOften) {
  PacedWorker worker;
  worker.work(20, 1.0, 0);
  EXPECT_EQ(worker.pace.batches(), 16);  // a sixteenth of the time is not too much
  EXPECT_EQ(worker.pace.units_of_lease(), 1);
}

TEST(Pace, SettlesWhateverALinkTakes) {
  for (double exchange = 0.001; exchange < 100; exchange *= 1.3) {
    PacedWorker worker;
    worker.work(50, exchange, 0);
    const int settled = worker.pace.batches();
    for (int i = 0; i < 20; ++i) {
      worker.work(1, exchange, 0);
      EXPECT_EQ(worker.pace.batches(), settled) << exchange;
    }
  }
}

TEST(Pace, GoesBackWhenLinksAreFastAgain) {
  PacedWorker worker;
  worker.work(20, 1.0, 0);
  worker.work(20, 0.001, 0);
  EXPECT_EQ(worker.pace.batches(), 1);
}

TEST(Pace, LeasesGrowOnTheirOwn) {
  PacedWorker worker;
  worker.work(20, 0, 0.5);
  EXPECT_EQ(worker.pace.batches(), 1);
  EXPECT_EQ(worker.pace.units_of_lease(), 8);
}

TEST(Pace, KeepsItsLimits) {
  PacedWorker worker{.pace = Pace({.most_batches = 4, .most_units_of_lease = 2})};
  worker.work(50, 100, 100);
  EXPECT_EQ(worker.pace.batches(), 4);
  EXPECT_EQ(worker.pace.units_of_lease(), 2);
}

TEST(Pace, DecidesNothingOfAMoment) {
  Pace pace;
  EXPECT_FALSE(pace.note({.all = 0.1, .links = 0.1}));
  EXPECT_TRUE(pace.note({.all = 0.3, .links = 0.3}));
}

}  // namespace
}  // namespace distbelief
