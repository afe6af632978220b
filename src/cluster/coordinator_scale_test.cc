#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/simulated_job.h"

namespace distbelief {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

control::Order order_of(control::Order::What what, int number) {
  control::Order order;
  order.set_what(what);
  order.set_reason("a test wants it");
  what == control::Order::LEAVE ? order.set_rank(number) : order.set_workers(number);
  return order;
}

/// A job of a group with a launcher, with so many workers.
class ScaledJob : public SimulatedJob {
 public:
  explicit ScaledJob(int count, bool launcher_starts = true)
      : SimulatedJob({.workers = count,
                      .has_launcher = true,
                      .workers_may_leave = true,
                      .launcher_starts_workers = launcher_starts}) {
    launcher = join(control::LAUNCHER);
    for (int i = 0; i < count; ++i) {
      workers.push_back(join());
    }
    observer = join(control::OBSERVER);
    beating = {launcher, observer};
    beating.insert(workers.begin(), workers.end());
  }
  control::OrderAnswer scale(int count) {
    say(observer, order_of(control::Order::SCALE, count));
    return last<control::OrderAnswer>(observer);
  }
  bool was_asked_to_leave(std::size_t worker) {
    const auto orders = take<control::Order>(workers[worker]);
    return std::ranges::any_of(orders, [](const auto& order) { return order.what() == control::Order::LEAVE; });
  }
  void wish(std::size_t worker) { say(workers[worker], order_of(control::Order::LEAVE, static_cast<int>(worker))); }

  ConnectionId launcher{};
  std::vector<ConnectionId> workers;
  ConnectionId observer{};
};

TEST(Scaling, ToFewerHasThoseWithTheHighestNumbersLeave) {
  ScaledJob job(4);
  const auto answer = job.scale(2);
  EXPECT_TRUE(answer.accepted());
  EXPECT_EQ(answer.text(), "4 workers → 2: workers 2 and 3 leave");
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(job.was_asked_to_leave(i), i >= 2) << i;
  }
  job.leave(job.workers[3], true, "left after step 12");
  job.pass(SimulatedJob::Ms(100));
  const auto view = job.last<control::View>(job.workers[0]);
  EXPECT_EQ(view.reason(), "worker 3 (pid 1005 on alpha) left after step 12");
  EXPECT_TRUE(view.peaceful());
  EXPECT_THAT(view.members(), SizeIs(3));
  EXPECT_EQ(job.scale(2).text(), "2 workers, as it is");  // one is about to leave
  EXPECT_EQ(job.scale(1).text(), "2 workers → 1: workers 1 and 2 leave");
}

TEST(Scaling, ToMoreTellsTheLauncherAndCountsWhoIsOnTheWay) {
  ScaledJob job(1);
  const auto answer = job.scale(3);
  EXPECT_TRUE(answer.accepted());
  EXPECT_EQ(answer.text(), "1 worker → 3: 2 are started");
  auto order = job.last<control::Order>(job.launcher);
  EXPECT_EQ(order.what(), control::Order::START);
  EXPECT_EQ(order.workers(), 2);
  EXPECT_EQ(job.scale(3).text(), "3 workers, as it is");
  job.join();
  job.join();
  EXPECT_EQ(job.scale(4).text(), "3 workers → 4: one is started");
  EXPECT_EQ(job.last<control::Order>(job.launcher).workers(), 1);
  job.exit(job.launcher, ConnectionId{77}, 9);  // it never came
  EXPECT_THAT(job.last<control::Notice>(job.observer).text(), HasSubstr("before it joined"));
  EXPECT_EQ(job.scale(4).text(), "3 workers → 4: one is started");
}

TEST(Scaling, ToMoreThanTheMachineBearsIsRefused) {
  ScaledJob job(2);
  EXPECT_EQ(job.scale(100'000).text(),
            "2 processes of the job are here, and more than 1000 are too many for this machine: run 'distbelief join' "
            "on others");
  EXPECT_THAT(job.take<control::Order>(job.launcher), IsEmpty());
  EXPECT_TRUE(job.scale(1000).accepted());
  EXPECT_FALSE(job.scale(1001).accepted());
}

TEST(Scaling, IsRefusedInOneLineWhereItCannotBe) {
  ScaledJob foreign(2, false);
  EXPECT_THAT(foreign.scale(3).text(), HasSubstr("run 'distbelief join'"));
  EXPECT_FALSE(foreign.scale(3).accepted());
  SimulatedJob job({.workers = 2, .servers = 1, .takes_late_members = false});
  const auto observer = job.join(control::OBSERVER);
  const auto refusal = [&](const control::Order& order) {
    job.say(observer, order);
    const auto answer = job.last<control::OrderAnswer>(observer);
    EXPECT_FALSE(answer.accepted());
    return answer.text();
  };
  EXPECT_THAT(refusal(order_of(control::Order::SCALE, 1)), HasSubstr("the job is waiting for 3 of 3 processes"));
  job.join();
  job.join();
  job.join(control::SERVER);
  EXPECT_THAT(refusal(order_of(control::Order::SCALE, 1)), HasSubstr("cannot do without each other"));
  EXPECT_THAT(refusal(order_of(control::Order::SCALE, 3)), HasSubstr("takes no workers in while it runs"));
  control::Order servers = order_of(control::Order::SCALE, 2);
  servers.set_servers(2);
  EXPECT_THAT(refusal(servers), HasSubstr("servers"));
}

TEST(WishToLeave, OfOneIsGrantedAndOfAllIsAStop) {
  ScaledJob job(3);
  job.wish(1);
  EXPECT_FALSE(job.was_asked_to_leave(1));  // the others' may be on their way
  job.pass(SimulatedJob::Ms(700));
  EXPECT_TRUE(job.was_asked_to_leave(1));
  EXPECT_FALSE(job.was_asked_to_leave(0));
  job.leave(job.workers[1], true, "left after step 3");
  job.wish(0);
  job.wish(2);
  job.pass(SimulatedJob::Ms(700));
  for (const std::size_t worker : {std::size_t{0}, std::size_t{2}}) {
    const auto orders = job.take<control::Order>(job.workers[worker]);
    ASSERT_THAT(orders, SizeIs(1));
    EXPECT_EQ(orders[0].what(), control::Order::STOP);
    EXPECT_EQ(orders[0].reason(), "all workers were asked to end");
  }
}

TEST(WishToLeave, WaitsWhileTheLauncherMayBeGone) {
  ScaledJob job(2);
  job.wish(1);
  job.close(job.launcher);
  job.pass(SimulatedJob::Ms(400));
  EXPECT_THAT(job.take<control::Order>(job.workers[1]), IsEmpty());
  job.pass(SimulatedJob::Ms(400));  // it is: all stop
  EXPECT_EQ(job.last<control::Order>(job.workers[1]).what(), control::Order::STOP);
}

TEST(WishToLeave, OfAnotherIsNotForAWorkerToSay) {
  ScaledJob job(2);
  job.say(job.workers[0], order_of(control::Order::LEAVE, 1));
  EXPECT_TRUE(job.is_closed(job.workers[0]));
  EXPECT_THAT(job.take<control::Order>(job.workers[1]), IsEmpty());
}

TEST(Leaving, IsOrderedAgainByACoordinatorThatCameBack) {
  ScaledJob job(2);
  const auto welcome = job.last<control::Welcome>(job.workers[1]);
  job.say(job.observer, order_of(control::Order::LEAVE, 1));
  SimulatedJob next(SimulatedJob::Killed{job});
  const auto back = next.join(SimulatedJob::back(welcome));
  EXPECT_EQ(next.last<control::Order>(back).what(), control::Order::LEAVE);
}

}  // namespace
}  // namespace distbelief
