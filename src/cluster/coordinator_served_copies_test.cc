// Jobs whose servers hold a network that is cut over two workers: copies of it that come, go, break and are made again.
#include <gmock/gmock.h>

#include "cluster/simulated_job.h"

namespace distbelief {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using Ms = std::chrono::milliseconds;

/// A job of so many copies and two servers, with a launcher that may start so many processes in the places of others.
class ServedCopies : public SimulatedJob {
 public:
  explicit ServedCopies(int copies, int restarts = 0,
                        const std::function<ProcessSight(const ProcessIdentity&)>& look_for_process = {})
      : SimulatedJob({.workers = 2 * copies,
                      .servers = 2,
                      .parts = 2,
                      .has_launcher = true,
                      .takes_late_members = false,
                      .workers_may_leave = true,
                      .servers_may_change = true,
                      .launcher_starts_workers = true,
                      .restarts = restarts,
                      .look_for_process = look_for_process}) {
    launcher = join(control::LAUNCHER);
    for (int i = 0; i < 2 * copies; ++i) {
      workers.push_back(join());
    }
    servers = {join(control::SERVER), join(control::SERVER)};
    beating = {launcher};
    beating.insert(workers.begin(), workers.end());
    beating.insert(servers.begin(), servers.end());
    pass(Ms(200));
  }
  void kill(ConnectionId process) {
    close(process);
    exit(launcher, process, 9);
    beating.erase(process);
    pass(Ms(100));
  }
  /// One of its workers dies, and another is started; what is left of the copy waits.
  ConnectionId break_first_copy() {
    kill(workers[1]);
    EXPECT_EQ(started(), 1);
    return again(workers[0]);
  }
  /// The process of `of` joins once more.
  ConnectionId again(ConnectionId of, control::Role role = control::STANDBY, int rank = -1) {
    control::Join join = make_join(role, rank);
    join.set_pid(1000 + static_cast<int>(of.value));
    join.set_launch(of.value);
    return come(join);
  }
  ConnectionId newcomer() {
    control::Join join = make_join(control::STANDBY);
    join.set_grows(true);
    return come(join);
  }
  ConnectionId come(const control::Join& asks) {
    const ConnectionId connection = join(asks);
    beating.insert(connection);
    return connection;
  }
  /// How many processes the launcher was told to start since the last call.
  int started() {
    int count = 0;
    for (const control::Order& order : take<control::Order>(launcher)) {
      count += order.what() == control::Order::START ? order.workers() : 0;
    }
    return count;
  }
  /// As which worker it is called; -1: it is not.
  int called(ConnectionId standby) {
    const auto orders = take<control::Order>(standby);
    return orders.empty() || orders.back().what() != control::Order::TAKE_OVER ? -1 : orders.back().rank();
  }
  /// Who waited becomes a worker, as it was called to.
  ConnectionId take_over(ConnectionId standby, ConnectionId process, int rank) {
    leave(standby, true, kTakesOver);
    beating.erase(standby);
    return again(process, control::WORKER, rank);
  }
  std::string phase() { return state().status(now()).phase(); }
  std::vector<std::string> notices() {
    std::vector<std::string> texts;
    for (const control::Notice& notice : take<control::Notice>(launcher)) {
      texts.push_back(notice.text());
    }
    return texts;
  }

  ConnectionId launcher;
  std::vector<ConnectionId> workers, servers;
};

/// The coordinator after it, and who comes back to it.
class Successor : public SimulatedJob {
 public:
  Successor(ServedCopies& job, const std::vector<ConnectionId>& living) : SimulatedJob(Killed{job, Ms(100)}) {
    for (const ConnectionId old : living) {
      come_back(job.last<control::Welcome>(old), old);
    }
    launcher = here[job.launcher];
  }
  void come_back(const control::Welcome& welcome, ConnectionId old) {
    here[old] = join(back(welcome));
    beating.insert(here[old]);
  }
  std::map<ConnectionId, ConnectionId> here;
  ConnectionId launcher;
};

TEST(ServedCopies, AreMadeOfWhatIsLeftOfTwoThatBroke) {
  ServedCopies job(3);
  job.kill(job.workers[0]);
  EXPECT_TRUE(job.last<control::Fenced>(job.workers[1]).come_again());
  const auto first = job.again(job.workers[1]);
  EXPECT_EQ(job.called(first), -1);
  job.kill(job.workers[3]);
  const auto second = job.again(job.workers[2]);
  EXPECT_EQ(job.called(first), 8);
  EXPECT_EQ(job.called(second), 9);
  EXPECT_THAT(job.notices(), testing::Contains("2 that waited make another copy of the network"));
}

TEST(ServedCopies, HaveAProcessStartedForEachWorkerThatIsMissingAndNoMore) {
  ServedCopies job(2, 3);
  const auto left = job.break_first_copy();
  job.pass(Ms(5000));
  EXPECT_EQ(job.started(), 0);
  const auto came = job.newcomer();
  EXPECT_GE(job.called(left), 0);
  EXPECT_GE(job.called(came), 0);
  EXPECT_EQ(job.started(), 0);
}

TEST(ServedCopies, GiveWhoLivesTheTimeToEndItsStep) {
  ServedCopies job(2, 3);
  job.close(job.workers[0]);  // its link is down for a moment
  job.beating.erase(job.workers[0]);
  job.kill(job.workers[1]);
  EXPECT_EQ(job.started(), 1);
  control::Join back = job.back(job.last<control::Welcome>(job.workers[0]));
  EXPECT_TRUE(job.last<control::Fenced>(job.join(back)).come_again());
  job.pass(Ms(15'000));
  EXPECT_EQ(job.started(), 0);
  EXPECT_THAT(job.notices(), testing::Not(testing::Contains(HasSubstr("did not come again"))));
}

TEST(ServedCopies, DoNotWaitForWhoeverIsSeenToBeGone) {
  std::set<std::int64_t> gone;
  ServedCopies job(2, 3, [&](const ProcessIdentity& process) {
    return gone.contains(process.pid) ? ProcessSight::gone : ProcessSight::runs;
  });
  job.close(job.workers[0]);
  job.kill(job.workers[1]);
  EXPECT_EQ(job.started(), 1);
  gone.insert(1000 + static_cast<std::int64_t>(job.workers[0].value));
  job.pass(Ms(100));
  EXPECT_EQ(job.started(), 1);
}

TEST(ServedCopies, CountAProcessThatEndedBeforeItJoinedOnceHoweverOftenThatIsSaid) {
  ServedCopies job(2, 3);
  job.kill(job.workers[1]);
  (void)job.again(job.workers[0]);
  EXPECT_EQ(job.started(), 1);
  job.exit(job.launcher, ConnectionId{500}, 9);
  EXPECT_EQ(job.started(), 1);
  Successor next(job, {job.launcher, job.workers[2], job.workers[3]});
  next.exit(next.launcher, ConnectionId{500}, 9);
  next.pass(Ms(100));
  EXPECT_THAT(next.take<control::Order>(next.launcher), IsEmpty());
}

TEST(ServedCopies, DoNotWaitForOneWhoWasAboutToGoWhenItWasCalled) {
  ServedCopies job(2, 3);
  job.kill(job.workers[1]);
  const auto left = job.again(job.workers[0]);
  const auto came = job.newcomer();
  ASSERT_GE(job.called(left), 0);
  (void)job.started();
  job.leave(came, true, "was not needed");
  job.beating.erase(came);
  job.pass(Ms(100));
  EXPECT_EQ(job.started(), 1);
}

TEST(ServedCopies, HaveAnotherStartedWhenOneThatWaitsOrWasStartedDies) {
  ServedCopies job(2, 3);
  const auto left = job.break_first_copy();
  job.close(left);
  job.beating.erase(left);
  job.exit(job.launcher, job.workers[0], 9);
  job.pass(Ms(1000));
  EXPECT_EQ(job.started(), 1);
  job.exit(job.launcher, ConnectionId{98}, 9);  // which was on its way
  EXPECT_EQ(job.started(), 1);
}

TEST(ServedCopies, AreNotCountedTwiceWhenTheyAreCalledWhileAnotherBreaks) {
  ServedCopies job(2, 1);
  const auto standby = job.join(control::STANDBY);
  job.beating.insert(standby);
  job.kill(job.workers[1]);
  EXPECT_EQ(job.started(), 0);
  const auto left = job.again(job.workers[0]);
  const int first = job.called(left);
  const int second = job.called(standby);
  EXPECT_EQ(first + second, 13);  // 6 and 7
  job.kill(job.workers[3]);
  EXPECT_EQ(job.started(), 1);
}

TEST(ServedCopies, DoNotTakeTheCoordinatorsDeathForANewcomers) {
  ServedCopies job(1, 1);
  const auto left = job.break_first_copy();
  job.pass(Ms(100));
  Successor next(job, {job.launcher, job.servers[0], job.servers[1], left});
  next.exit(next.launcher, ConnectionId{97}, 9, true, "coordinator");
  next.pass(Ms(1000));
  EXPECT_EQ(next.state().status(next.now()).phase(), "running");
  EXPECT_EQ(next.saved().starting_newcomers(), 1U);
}

TEST(ServedCopies, AreAwaitedByServersNoLongerThanSomebodyMayComeAlsoAfterAReturn) {
  ServedCopies job(1);
  const auto standby = job.join(control::STANDBY);
  job.beating.insert(standby);
  job.kill(job.workers[1]);
  job.pass(Ms(100));
  EXPECT_EQ(job.last<control::View>(job.servers[0]).awaited(), 2U);
  Successor next(job, {job.launcher, job.servers[0], job.servers[1]});
  next.pass(Ms(30'000));
  EXPECT_EQ(next.last<control::View>(next.here[job.servers[0]]).awaited(), 0U);
  EXPECT_THAT(next.state().status(next.now()).phase(), HasSubstr("all workers are lost"));
}

TEST(ServedCopies, AreMadeAgainWhenAllWorkersOfTheOnlyOneDieTogether) {
  for (const bool exit_first : {true, false}) {
    ServedCopies job(1, 2);
    if (exit_first) {
      job.exit(job.launcher, job.workers[0], 9);
      job.exit(job.launcher, job.workers[1], 9);
    }
    job.close(job.workers[0]);
    job.close(job.workers[1]);
    job.beating.erase(job.workers[0]);
    job.beating.erase(job.workers[1]);
    job.pass(Ms(2000));  // without an exit it takes half a second each to know
    EXPECT_EQ(job.started(), 2) << exit_first;
    job.pass(Ms(10'000));
    const auto first = job.newcomer();
    const auto second = job.newcomer();
    EXPECT_EQ(job.called(first) + job.called(second), 9) << exit_first;
    EXPECT_EQ(job.phase(), "running");
  }
}

TEST(ServedCopies, BreakWhenOneIsToEndBeforeTheOthersHaveComeAndTheseWaitForTheNext) {
  for (const bool both_came : {true, false}) {
    ServedCopies job(2, 1);
    const auto one = job.newcomer();
    const auto other = job.newcomer();
    const int first = job.called(one);
    const int second = job.called(other);
    const auto a = job.take_over(one, one, first);
    std::optional<ConnectionId> b;
    if (both_came) {
      b = job.take_over(other, other, second);
    }
    job.leave(a, true, kNeverBegan);
    job.beating.erase(a);
    if (!both_came) {
      b = job.take_over(other, other, second);
    }
    EXPECT_TRUE(job.last<control::Fenced>(*b).come_again());
    job.again(other);
    job.pass(Ms(1000));
    EXPECT_EQ(job.started(), 0);  // nobody was lost
    EXPECT_THAT(job.state().status(job.now()).phase(), "running");
  }
}

TEST(ServedCopies, DoNotHoldUpAServerThatComesWhileTheyAreAwaited) {
  ServedCopies job(1, 1);
  job.kill(job.workers[1]);
  (void)job.again(job.workers[0]);
  job.pass(Ms(200));
  const auto server = job.join(control::SERVER);
  job.beating.insert(server);
  job.pass(Ms(200));
  EXPECT_THAT(job.take<control::View>(server), SizeIs(1));
}

TEST(ServedCopies, HaveOthersStartedWhenTheOrderToStartThemWasLostWithTheCoordinator) {
  ServedCopies job(2, 2);
  job.kill(job.workers[1]);
  Successor next(job, {job.launcher, job.workers[2], job.workers[3], job.servers[0], job.servers[1]});
  next.pass(Ms(120'000));
  int starts = 0;
  for (const control::Order& order : next.take<control::Order>(next.launcher)) {
    starts += order.what() == control::Order::START ? order.workers() : 0;
  }
  EXPECT_EQ(starts, 1);  // there was one restart left, and the other worker of the copy did not come again
}

TEST(ServedCopies, AreAwaitedBeforeTheLauncherCanBeToldToStartSomebody) {
  ServedCopies job(1, 1);
  Successor next(job, {job.launcher, job.workers[0]});
  next.exit(next.launcher, job.workers[1], 9);
  next.pass(Ms(100));  // the death is known, and who is there is not yet
  for (const ConnectionId server : job.servers) {
    next.come_back(job.last<control::Welcome>(server), server);
  }
  next.pass(Ms(600));
  for (const ConnectionId server : job.servers) {
    for (const control::View& view : next.take<control::View>(next.here[server])) {
      const bool has_workers = std::ranges::any_of(
          view.members(), [](const control::Member& member) { return member.role() == control::WORKER; });
      EXPECT_TRUE(has_workers || view.awaited() > 0) << view.DebugString();
    }
  }
  EXPECT_EQ(next.state().status(next.now()).phase(), "running");
}

TEST(ServedCopies, StartNobodyForOneWhoIsOnItsWayToACopyThatBroke) {
  ServedCopies job(2, 3);
  const auto left = job.break_first_copy();
  const auto came = job.newcomer();
  ASSERT_GE(job.called(left), 0);
  ASSERT_GE(job.called(came), 0);
  job.leave(left, true, kTakesOver);
  job.beating.erase(left);
  job.leave(came, true, kTakesOver);
  job.beating.erase(came);
  job.exit(job.launcher, job.workers[0], 9);
  job.pass(Ms(1000));
  EXPECT_EQ(job.started(), 1);
}

TEST(ServedCopies, SayWhoIsOnItsWayWhenTheyAreScaledAgainAndWantNoMoreThanThat) {
  ServedCopies job(1);
  const auto observer = job.join(control::OBSERVER);
  const auto scale = [&](int workers) {
    control::Order order;
    order.set_what(control::Order::SCALE);
    order.set_workers(workers);
    job.say(observer, order);
    return job.last<control::OrderAnswer>(observer).text();
  };
  EXPECT_EQ(scale(6), "2 workers → 6: 4 are started");
  EXPECT_EQ(scale(6), "2 workers → 6: 4 are on their way");
  EXPECT_EQ(job.started(), 4);
}

TEST(ServedCopies, ExpectNobodyAnyMoreWhenTheJobStops) {
  ServedCopies job(2);
  job.kill(job.workers[1]);
  (void)job.notices();
  job.state().stop("Ctrl-C", job.now());
  job.pass(Ms(30'000));
  EXPECT_THAT(job.notices(), testing::Not(testing::Contains(HasSubstr("did not come"))));
}

TEST(ServedCopies, HaveNoServerReplacedWhoseParametersNobodyElseHas) {
  SimulatedJob job({.workers = 2,
                    .servers = 2,
                    .parts = 2,
                    .has_launcher = true,
                    .servers_may_change = true,
                    .launcher_starts_workers = true,
                    .servers_have_copies = false,
                    .restarts = 1});
  const auto launcher = job.join(control::LAUNCHER);
  (void)job.join();
  (void)job.join();
  const auto first = job.join(control::SERVER);
  (void)job.join(control::SERVER);
  job.close(first);
  job.exit(launcher, first, 9);
  EXPECT_THAT(job.take<control::Order>(launcher), IsEmpty());
}

}  // namespace
}  // namespace distbelief
