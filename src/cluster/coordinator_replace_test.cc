#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/simulated_job.h"

namespace distbelief {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

/// A job whose network is cut over four workers, two for a copy, with a launcher and so many standbys and restarts.
class CutJob : public SimulatedJob {
 public:
  explicit CutJob(int standby_count, int restarts = 0, int restarts_before = 0)
      : SimulatedJob({.workers = 4,
                      .parts = 2,
                      .has_launcher = true,
                      .takes_late_members = false,
                      .restarts = restarts,
                      .restarts_before = restarts_before}) {
    launcher = join(control::LAUNCHER);
    for (int i = 0; i < 4; ++i) {
      workers.push_back(join());
    }
    for (int i = 0; i < standby_count; ++i) {
      standbys.push_back(join(control::STANDBY));
    }
    beating = {launcher};
    beating.insert(workers.begin(), workers.end());
    beating.insert(standbys.begin(), standbys.end());
  }
  void kill(ConnectionId process) {
    close(process);
    exit(launcher, process, 9);
    beating.erase(process);
    pass(Ms(100));
  }
  bool was_called(ConnectionId standby) {
    const auto orders = take<control::Order>(standby);
    return std::ranges::any_of(orders, [](const auto& order) { return order.what() == control::Order::TAKE_OVER; });
  }
  /// As a standby's process joins when it was called.
  ConnectionId come(ConnectionId standby) {
    control::Join join = make_join();
    join.set_pid(1000 + static_cast<int>(standby.value));
    join.set_launch(standby.value);
    const ConnectionId worker = SimulatedJob::join(join);
    beating.insert(worker);
    pass(Ms(100));
    return worker;
  }
  void take_over(ConnectionId standby) {
    leave(standby, true, kTakesOver);
    beating.erase(standby);
  }
  control::View view() { return last<control::View>(workers[0]); }

  ConnectionId launcher{};
  std::vector<ConnectionId> workers;
  std::vector<ConnectionId> standbys;
};

TEST(Replacement, IsAwaitedUntilItHasCome) {
  CutJob job(1);
  job.kill(job.workers[1]);
  EXPECT_TRUE(job.was_called(job.standbys[0]));
  auto view = job.view();
  EXPECT_THAT(view.members(), SizeIs(3));
  EXPECT_EQ(view.awaited(), 1U);
  job.take_over(job.standbys[0]);
  const ConnectionId worker = job.come(job.standbys[0]);
  EXPECT_EQ(job.last<control::Welcome>(worker).rank(), 4);
  view = job.view();
  EXPECT_THAT(view.members(), SizeIs(4));
  EXPECT_EQ(view.awaited(), 0U);
}

TEST(Replacement, ThatDiesOnItsWayIsFollowedByAnother) {
  CutJob job(2);
  job.kill(job.workers[1]);
  ASSERT_TRUE(job.was_called(job.standbys[0]));
  job.take_over(job.standbys[0]);
  job.exit(job.launcher, job.standbys[0], 9);
  job.pass(SimulatedJob::Ms(100));
  EXPECT_TRUE(job.was_called(job.standbys[1]));
  EXPECT_EQ(job.view().awaited(), 1U);
  job.kill(job.standbys[1]);
  const auto view = job.view();  // there is nobody else
  EXPECT_EQ(view.awaited(), 0U);
  EXPECT_THAT(view.members(), SizeIs(3));
}

TEST(Replacement, ThatDoesNotComeIsNotWaitedForAnyMoreAndThenRefused) {
  CutJob job(1);
  job.kill(job.workers[1]);
  job.take_over(job.standbys[0]);
  EXPECT_EQ(job.view().awaited(), 1U);
  job.pass(SimulatedJob::Ms(21'000));
  EXPECT_EQ(job.view().awaited(), 0U);
  EXPECT_THAT(job.last<control::Notice>(job.launcher).text(), HasSubstr("did not come within 20 s"));
  const ConnectionId late = job.come(job.standbys[0]);
  EXPECT_THAT(job.last<control::Refused>(late).reason(), HasSubstr("in the places of those that die"));
}

TEST(Replacement, IsAllThatANetworkThatIsCutTakesIn) {
  CutJob job(0);
  EXPECT_THAT(job.last<control::Refused>(job.join()).reason(), HasSubstr("in the places of those that die"));
  const ConnectionId standby = job.join(control::STANDBY);
  EXPECT_THAT(job.take<control::Refused>(standby), IsEmpty());
  job.beating.insert(standby);
  job.kill(job.workers[3]);
  EXPECT_TRUE(job.was_called(standby));
}

TEST(Replacement, IsStartedByTheLauncherAsOftenAsThereAreRestarts) {
  CutJob job(0, 3, 1);
  for (const int number : {2, 3}) {
    job.kill(job.workers[static_cast<std::size_t>(number)]);
    const auto order = job.last<control::Order>(job.launcher);
    EXPECT_EQ(order.what(), control::Order::START);
    EXPECT_EQ(order.workers(), 1);
    EXPECT_THAT(order.reason(), HasSubstr(fmt::format("is replaced ({} of 3 restarts)", number)));
    EXPECT_EQ(job.view().awaited(), 1U);
    job.beating.insert(job.join());
    job.pass(SimulatedJob::Ms(100));
    EXPECT_EQ(job.view().awaited(), 0U);
  }
  job.kill(job.workers[1]);
  EXPECT_THAT(job.take<control::Order>(job.launcher), IsEmpty());
  EXPECT_EQ(job.view().awaited(), 0U);
}

TEST(Replacement, ThatWasStartedAndEndsBeforeItJoinsIsNotWaitedFor) {
  CutJob job(0, 1);
  job.kill(job.workers[2]);
  EXPECT_EQ(job.view().awaited(), 1U);
  job.exit(job.launcher, ConnectionId{77}, 9);
  job.pass(SimulatedJob::Ms(100));
  EXPECT_EQ(job.view().awaited(), 0U);
}

TEST(Replacement, IsNotWaitedForWhenTheJobIsToStop) {
  CutJob job(1);
  job.kill(job.workers[1]);
  EXPECT_EQ(job.view().awaited(), 1U);
  control::Order order;
  order.set_what(control::Order::STOP);
  order.set_reason("the user asked for it");
  job.say(job.launcher, order);
  job.pass(SimulatedJob::Ms(100));
  EXPECT_EQ(job.view().awaited(), 0U);
}

TEST(Replacement, IsAwaitedByACoordinatorThatCameBackToo) {
  CutJob job(1, 2);
  const auto welcome = job.last<control::Welcome>(job.workers[0]);
  job.kill(job.workers[1]);
  job.take_over(job.standbys[0]);
  job.kill(job.workers[2]);
  EXPECT_EQ(job.view().awaited(), 2U);
  SimulatedJob next(SimulatedJob::Killed{job});
  const ConnectionId back = next.join(SimulatedJob::back(welcome));
  EXPECT_EQ(next.last<control::View>(back).awaited(), 2U);
  EXPECT_EQ(next.saved().restarts_used(), 1U);
}

TEST(Standby, IsThereWhenTheJobBegins) {
  SimulatedJob job({.workers = 1, .standbys = 1});
  const ConnectionId worker = job.join();
  job.beating = {worker};
  job.pass(SimulatedJob::Ms(5'000));
  EXPECT_THAT(job.take<control::View>(worker), IsEmpty());
  EXPECT_EQ(job.state().status(job.now()).phase(), "waiting for standbys");
  job.join(control::STANDBY);
  EXPECT_THAT(job.take<control::View>(worker), SizeIs(1));
}

TEST(Standby, ThatOpensItsDataForTooLongIsNotWaitedFor) {
  SimulatedJob job({.workers = 1, .standbys = 1});
  const ConnectionId worker = job.join();
  job.beating = {worker};
  job.pass(SimulatedJob::Ms(31'000));
  EXPECT_THAT(job.take<control::View>(worker), SizeIs(1));
}

TEST(Replacement, IsNotWaitedForWhereWorkersComeAtAnyTime) {
  SimulatedJob job({.workers = 2});
  const ConnectionId first = job.join();
  const ConnectionId second = job.join();
  const ConnectionId standby = job.join(control::STANDBY);
  job.beating = {first, standby};
  job.close(second);
  job.pass(SimulatedJob::Ms(800));
  EXPECT_EQ(job.last<control::Order>(standby).what(), control::Order::TAKE_OVER);
  EXPECT_EQ(job.last<control::View>(first).awaited(), 0U);
}

}  // namespace
}  // namespace distbelief
