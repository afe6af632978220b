#include "train/coordinator_watch.h"

#include <gtest/gtest.h>

namespace distbelief {
namespace {

/// Asked twice a second, of a coordinator that was last heard, or of whose machine, at a certain second.
class Watched : public testing::Test {
 protected:
  /// The second at which it is said to hang; -1: not until `end`.
  double hangs_at(std::uint64_t term, double answered, double end) {
    for (; now_ < end; now_ += 0.5) {
      if (watch.hangs(term, at(answered < 0 ? now_ : answered), at(now_))) {
        return now_;
      }
    }
    return -1;
  }
  Clock::time_point at(double second) const {
    return start_ + std::chrono::milliseconds(static_cast<std::int64_t>(second * 1000));
  }
  static constexpr double kAlways = -1;
  CoordinatorWatch watch;
  double now_ = 0;

 private:
  const Clock::time_point start_ = Clock::now();
};

TEST_F(Watched, HangsWhenItHasBeenSilentForFiveSeconds) {
  EXPECT_EQ(hangs_at(1, kAlways, 10), -1);
  EXPECT_EQ(hangs_at(1, 10, 20), 15);
}

TEST_F(Watched, HangsAgainSoonAfterItCameBack) {
  EXPECT_EQ(hangs_at(1, 0, 10), 5);
  watch.ended(1, at(5));
  EXPECT_EQ(hangs_at(2, kAlways, 6), -1);
  EXPECT_EQ(hangs_at(2, 6, 20), 11);
}

TEST_F(Watched, HangsAlsoWhenItLetsOthersConnectAndNeverAnswers) {
  EXPECT_EQ(hangs_at(1, kAlways, 1), -1);
  watch.ended(1, at(1));
  EXPECT_EQ(hangs_at(1, 1, 20), 6);
}

TEST_F(Watched, HasTimeToListenWhereItsMachineSaysThatNobodyDoes) {
  EXPECT_EQ(hangs_at(1, kAlways, 1), -1);
  watch.ended(1, at(1));
  EXPECT_EQ(hangs_at(1, kAlways, 60), 21);
}

TEST_F(Watched, IsNotBlamedForTheTimeInWhichTheWatcherWasStopped) {
  EXPECT_EQ(hangs_at(1, kAlways, 10), -1);
  now_ = 40;
  EXPECT_EQ(hangs_at(1, 9.5, 60), 45);
}

}  // namespace
}  // namespace distbelief
