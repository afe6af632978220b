#include "base/side_thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>

#include "base/error.h"

namespace distbelief {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLong{60'000};

TEST(SideThread, DoesOneTaskAfterTheOther) {
  SideThread side;
  int done = 0;
  EXPECT_TRUE(side.run([&] { ++done; }, kLong));
  EXPECT_TRUE(side.run([&] { ++done; }, kLong));
  EXPECT_EQ(done, 2);
}

TEST(SideThread, ThrowsWhatATaskThrew) {
  SideThread side;
  EXPECT_THROW((void)side.run([] { throw FileError("the disk is full"); }, kLong), FileError);
  EXPECT_TRUE(side.run([] {}, kLong));
}

TEST(SideThread, IsNotWaitedForLongerThanPatienceHolds) {
  std::latch goes_on(1);
  std::atomic<int> done = 0;
  SideThread side;
  EXPECT_FALSE(side.run(
      [&] {
        goes_on.wait();
        ++done;
        throw FileError("nobody hears of it");
      },
      milliseconds(1)));
  EXPECT_FALSE(side.run([&] { done += 100; }, kLong)) << "one is being done still, and this one is not waited for";
  EXPECT_FALSE(side.wait(milliseconds(1)));
  goes_on.count_down();
  EXPECT_TRUE(side.wait(kLong));
  EXPECT_TRUE(side.run([&] { done += 10; }, kLong));
  EXPECT_EQ(done, 11);
}

TEST(SideThread, FinishesItsTaskBeforeItIsGone) {
  std::latch goes_on(1);
  std::atomic<bool> done = false;
  {
    SideThread side;
    EXPECT_FALSE(side.run(
        [&] {
          goes_on.wait();
          done = true;
        },
        milliseconds(1)));
    goes_on.count_down();
  }
  EXPECT_TRUE(done);
}

}  // namespace
}  // namespace distbelief
