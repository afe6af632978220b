#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/simulated_job.h"

namespace distbelief {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

/// A job of so many copies of a network over two workers each, with a launcher, that grows and shrinks.
class CopiesJob : public SimulatedJob {
 public:
  explicit CopiesJob(int copies, std::uint64_t most_views = 0)
      : SimulatedJob({.workers = 2 * copies,
                      .parts = 2,
                      .has_launcher = true,
                      .takes_late_members = false,
                      .most_views = most_views,
                      .launcher_starts_workers = true}) {
    launcher = join(control::LAUNCHER);
    for (int i = 0; i < 2 * copies; ++i) {
      workers.push_back(join());
    }
    observer = join(control::OBSERVER);
    beating = {launcher, observer};
    beating.insert(workers.begin(), workers.end());
  }
  /// `distbelief join`, with a launch number if the launcher has started it.
  ConnectionId newcomer(bool started = false) {
    control::Join asked = make_join(control::STANDBY);
    asked.set_grows(true);
    asked.set_pid(++last_pid_);
    asked.set_launch(started ? static_cast<std::uint64_t>(last_pid_) : 0);
    const ConnectionId connection = join(asked);
    pids_[connection] = asked;
    beating.insert(connection);
    return connection;
  }
  bool was_called(ConnectionId standby) {
    const auto orders = take<control::Order>(standby);
    return std::ranges::any_of(orders, [](const auto& order) { return order.what() == control::Order::TAKE_OVER; });
  }
  ConnectionId come(ConnectionId standby) {
    leave(standby, true, kTakesOver);
    beating.erase(standby);
    control::Join again = pids_[standby];
    again.set_role(control::WORKER);
    again.set_grows(false);
    const ConnectionId worker = join(again);
    beating.insert(worker);
    pass(Ms(100));
    return worker;
  }
  control::OrderAnswer order(control::Order::What what, int number) {
    control::Order asked;
    asked.set_what(what);
    asked.set_reason("a test wants it");
    what == control::Order::LEAVE ? asked.set_rank(number) : asked.set_workers(number);
    say(observer, asked);
    auto answer = last<control::OrderAnswer>(observer);
    pass(Ms(100));
    return answer;
  }
  control::View view() { return last<control::View>(workers[0]); }
  std::vector<control::View> views() { return take<control::View>(workers[0]); }

  ConnectionId launcher{};
  ConnectionId observer{};
  std::vector<ConnectionId> workers;

 private:
  int last_pid_ = 5000;
  std::map<ConnectionId, control::Join> pids_;
};

TEST(Copies, GrowWhenEnoughWaitForOneMore) {
  CopiesJob job(1);
  const ConnectionId first = job.newcomer();
  EXPECT_FALSE(job.was_called(first));
  EXPECT_EQ(job.last<control::Notice>(first).text(),
            "standby (pid 5001 on alpha) waits: 1 more is needed for another copy of the network");
  const auto status = job.state().status(job.now());
  EXPECT_EQ(status.members(status.members_size() - 1).progress().operation(),
            "waiting: 1 more is needed for another copy of the network");
  (void)job.views();
  const ConnectionId second = job.newcomer();
  EXPECT_TRUE(job.was_called(first));
  EXPECT_TRUE(job.was_called(second));
  job.come(second);
  EXPECT_THAT(job.views(), IsEmpty());  // nobody could use a view with one of them
  job.come(first);
  const auto views = job.views();
  ASSERT_THAT(views, SizeIs(1));
  EXPECT_EQ(views[0].awaited(), 0U);
  EXPECT_THAT(views[0].members(), SizeIs(4));
}

TEST(Copies, AreWaitedForByACoordinatorThatCameBackToo) {
  CopiesJob job(1);
  const ConnectionId waiting = job.newcomer();
  std::vector<control::Welcome> members;
  for (const ConnectionId member : {job.launcher, job.workers[0], job.workers[1], waiting}) {
    members.push_back(job.last<control::Welcome>(member));
  }
  SimulatedJob next(SimulatedJob::Killed{job});
  ConnectionId back{};
  for (const control::Welcome& member : members) {
    back = next.join(SimulatedJob::back(member));
    next.beating.insert(back);
  }
  EXPECT_THAT(next.take<control::Order>(back), IsEmpty());
  control::Join another = SimulatedJob::make_join(control::STANDBY);
  another.set_grows(true);
  next.join(another);
  EXPECT_EQ(next.last<control::Order>(back).what(), control::Order::TAKE_OVER);
}

TEST(Copies, OfWhichSomeHaveComeGetAViewFromACoordinatorThatCameBack) {
  CopiesJob job(1);
  const auto welcome = job.last<control::Welcome>(job.workers[0]);
  const std::uint64_t number = job.view().number();
  const ConnectionId first = job.newcomer();
  job.newcomer();
  job.come(first);
  SimulatedJob next(SimulatedJob::Killed{job});
  const ConnectionId back = next.join(SimulatedJob::back(welcome));
  EXPECT_THAT(next.take<control::View>(back), IsEmpty());  // the last one did not have who has come since
  next.beating.insert(back);
  next.pass(SimulatedJob::Ms(200));
  const auto view = next.last<control::View>(back);
  EXPECT_EQ(view.number(), number + 1);
  EXPECT_EQ(view.awaited(), 1U);
  EXPECT_THAT(view.members(), SizeIs(3));
}

TEST(Copies, GiveWhoWaitsAnotherUseWhenAWorkerDies) {
  CopiesJob job(1);
  const ConnectionId waiting = job.newcomer();
  job.close(job.workers[1]);
  job.exit(job.launcher, job.workers[1], 9);
  job.pass(SimulatedJob::Ms(100));
  EXPECT_TRUE(job.was_called(waiting));
  EXPECT_EQ(job.view().awaited(), 1U);
}

TEST(Copies, LeaveWithOneOfTheirWorkers) {
  CopiesJob job(2);
  (void)job.views();
  const auto answer = job.order(control::Order::LEAVE, 3);
  EXPECT_TRUE(answer.accepted());
  EXPECT_THAT(answer.text(), HasSubstr("the others of its copy of the network end too"));
  EXPECT_THAT(job.view().leaving(), ElementsAre(3));
  EXPECT_TRUE(job.order(control::Order::LEAVE, 2).accepted());  // its mate
  const auto refused = job.order(control::Order::LEAVE, 1);
  EXPECT_FALSE(refused.accepted());
  EXPECT_THAT(refused.text(), HasSubstr("the last copy of the network"));
  EXPECT_THAT(refused.text(), HasSubstr("--resume"));
}

TEST(Copies, HaveTheirWorkersReplacedByWhoWaitsWhenTheyLeave) {
  CopiesJob job(1);
  EXPECT_FALSE(job.order(control::Order::LEAVE, 1).accepted());
  const ConnectionId waiting = job.newcomer();
  (void)job.views();
  const auto answer = job.order(control::Order::LEAVE, 1);
  EXPECT_TRUE(answer.accepted());
  EXPECT_THAT(answer.text(), HasSubstr("who waited takes its place"));
  EXPECT_TRUE(job.was_called(waiting));
  EXPECT_THAT(job.views(), IsEmpty());
  job.come(waiting);
  const auto view = job.view();
  EXPECT_THAT(view.leaving(), ElementsAre(1));
  EXPECT_THAT(view.members(), SizeIs(3));
}

TEST(Copies, KeepAWorkerWhoseSuccessorDoesNotCome) {
  CopiesJob job(1);
  const ConnectionId waiting = job.newcomer();
  EXPECT_TRUE(job.order(control::Order::LEAVE, 1).accepted());
  job.close(waiting);
  job.beating.erase(waiting);
  job.pass(SimulatedJob::Ms(1'000));
  EXPECT_THAT(job.view().leaving(), IsEmpty());
  EXPECT_THAT(job.last<control::Notice>(job.observer).text(), HasSubstr("stays: nobody is there to take its place"));
}

TEST(Copies, AreScaledToMoreByTheLauncherAndToFewerByAView) {
  CopiesJob job(1);
  EXPECT_EQ(job.order(control::Order::SCALE, 3).text(), "3 workers: 2 workers hold a copy of the network together");
  EXPECT_EQ(job.order(control::Order::SCALE, 4).text(), "2 workers → 4: 2 are started");
  EXPECT_EQ(job.last<control::Order>(job.launcher).workers(), 2);
  EXPECT_TRUE(job.order(control::Order::SCALE, 4).accepted());
  EXPECT_THAT(job.take<control::Order>(job.launcher), IsEmpty());  // they are on their way
  const ConnectionId first = job.newcomer(true);
  const ConnectionId second = job.newcomer(true);
  job.come(first);
  const ConnectionId last_one = job.come(second);
  EXPECT_EQ(job.order(control::Order::SCALE, 2).text(), "4 workers → 2: one copy of the network leaves");
  EXPECT_EQ(job.view().most_workers(), 2U);
  EXPECT_EQ(job.saved().most_workers(), 2U);
  job.leave(last_one, true, "left after step 7");
  job.leave(job.workers[1], true, "left after step 7");
  job.pass(SimulatedJob::Ms(500));
  EXPECT_EQ(job.view().most_workers(), 0U);  // it is done
}

TEST(Copies, ThatAreGivenUpAreNotCountedWhenTheJobIsScaled) {
  CopiesJob job(2);
  job.close(job.workers[3]);
  job.exit(job.launcher, job.workers[3], 9);
  job.pass(SimulatedJob::Ms(100));
  EXPECT_EQ(job.order(control::Order::SCALE, 4).text(), "2 workers → 4: 2 are started");  // worker 2 is about to end
}

TEST(Copies, HaveProcessesThatWereStartedForTheDeadTakeTheirPlacesAtOnce) {
  SimulatedJob job({.workers = 2, .parts = 2, .has_launcher = true, .takes_late_members = false, .restarts = 1});
  const ConnectionId launcher = job.join(control::LAUNCHER);
  const ConnectionId first = job.join();
  const ConnectionId second = job.join();
  job.beating = {launcher, first};
  job.close(second);
  job.exit(launcher, second, 9);
  job.pass(SimulatedJob::Ms(100));
  EXPECT_EQ(job.last<control::View>(first).awaited(), 1U);
  control::Join started = SimulatedJob::make_join(control::STANDBY);
  started.set_grows(true);
  const ConnectionId newcomer = job.join(started);
  EXPECT_EQ(job.last<control::Order>(newcomer).what(), control::Order::TAKE_OVER);
  EXPECT_EQ(job.saved().starting(), 0U);
}

TEST(Copies, DoNotComeOrGoWhenViewsRunOut) {
  CopiesJob job(2, 8);
  control::Join asked = SimulatedJob::make_join(control::STANDBY);
  asked.set_grows(true);
  EXPECT_THAT(job.last<control::Refused>(job.join(asked)).reason(), HasSubstr("changed too often"));
  EXPECT_THAT(job.order(control::Order::LEAVE, 3).text(), HasSubstr("changed too often"));
  EXPECT_THAT(job.order(control::Order::SCALE, 2).text(), HasSubstr("changed too often"));
}

}  // namespace
}  // namespace distbelief
