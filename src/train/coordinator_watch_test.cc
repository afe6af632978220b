#include "train/coordinator_watch.h"

#include <gtest/gtest.h>

namespace distbelief {
namespace {

class Watched : public testing::Test {
 protected:
  Clock::time_point at(double second) const {
    return start_ + std::chrono::milliseconds(static_cast<std::int64_t>(second * 1000));
  }
  /// From which second on it hangs, if nothing is heard any more.
  double hangs_at(double now) const {
    while (!watch.hangs(at(now))) {
      now += 0.5;
    }
    return now;
  }
  CoordinatorWatch watch;

 private:
  const Clock::time_point start_ = Clock::now() + std::chrono::hours(1);
};

TEST_F(Watched, HangsWhenItHasBeenSilentForFiveSeconds) {
  watch.heard(1, at(10));
  EXPECT_EQ(hangs_at(10), 15);
  watch.heard(1, at(14));
  EXPECT_EQ(hangs_at(10), 19);
}

TEST_F(Watched, HasMoreTimeUntilItIsHeardForTheFirstTime) {
  watch.heard(1, at(10));
  watch.ended(at(11));
  watch.heard(1, at(11.5));  // what the one before had said still came in
  EXPECT_EQ(hangs_at(11), 31);
}

TEST_F(Watched, HangsAgainSoonAfterItCameBack) {
  watch.heard(1, at(0));
  watch.ended(at(5));
  watch.heard(2, at(6));
  EXPECT_EQ(hangs_at(6), 11);
  watch.ended(at(11));
  watch.heard_anew(at(12));
  EXPECT_EQ(hangs_at(12), 17);
}

TEST_F(Watched, IsNotBlamedForTheTimeInWhichTheWatcherWasStopped) {
  watch.heard(1, at(10));
  watch.woke(at(10), at(40));
  EXPECT_EQ(hangs_at(40), 45);
  watch.woke(at(40), at(40.5));
  EXPECT_EQ(hangs_at(40), 45);
}

}  // namespace
}  // namespace distbelief
