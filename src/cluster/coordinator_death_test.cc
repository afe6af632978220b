#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/simulated_job.h"
#include "cluster/stall.h"

namespace distbelief {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using Ms = std::chrono::milliseconds;

/// Two workers and a launcher that are running, all heartbeating.
class RunningJob : public testing::Test {
 protected:
  RunningJob() : RunningJob(JobRules{.workers = 2, .has_launcher = true}) {}
  explicit RunningJob(const JobRules& rules) : job(rules) {
    launcher = job.join(control::LAUNCHER);
    zero = job.join();
    one = job.join();
    welcome = job.last<control::Welcome>(one);
    job.beating = {launcher, zero, one};
    if (rules.workers == 2) {
      EXPECT_EQ(job.last<control::View>(zero).number(), 1U);
      job.take<control::View>(one);
      job.take<control::View>(launcher);
    }
  }

  control::Join rejoin(ConnectionId old) {
    control::Join join = SimulatedJob::make_join();
    join.set_pid(1003);
    join.set_launch(3);
    join.set_member(welcome.member());
    join.set_incarnation(welcome.incarnation());
    join.set_received(job.numbered(old));
    return join;
  }

  SimulatedJob job;
  ConnectionId launcher, zero, one;
  control::Welcome welcome;
};
using CoordinatorDeath = RunningJob;

TEST_F(CoordinatorDeath, IsImmediateWhenTheLauncherSawTheExitAfterTheClose) {
  job.heartbeat(one, 120, "all-reduce 17");
  job.close(one);
  EXPECT_THAT(job.take<control::Lost>(zero), IsEmpty());
  job.exit(launcher, one, 9);
  const auto lost = job.last<control::Lost>(zero);
  EXPECT_EQ(lost.member().rank(), 1);
  EXPECT_EQ(lost.reason(), "was killed by signal 9 (SIGKILL), last seen after step 120: all-reduce 17");
  EXPECT_THAT(job.take<control::Lost>(launcher), SizeIs(1));
  job.pass(Ms(100));
  const auto view = job.last<control::View>(zero);
  EXPECT_EQ(view.number(), 2U);
  EXPECT_FALSE(view.complete());
  EXPECT_EQ(view.members_size(), 1);
  EXPECT_THAT(view.reason(), HasSubstr("worker 1 (pid 1003 on alpha) was killed by signal 9"));
}

TEST_F(CoordinatorDeath, IsImmediateWhenTheCloseComesAfterTheExit) {
  job.exit(launcher, one, 9);
  EXPECT_THAT(job.take<control::Lost>(zero), IsEmpty());  // its last words may be on the way
  job.close(one);
  EXPECT_THAT(job.take<control::Lost>(zero), SizeIs(1));
}

TEST_F(CoordinatorDeath, LastWordsThatComeAfterTheExitCount) {
  job.exit(launcher, one, 0);
  job.leave(one);
  job.close(one);
  job.pass(Ms(1000));
  EXPECT_THAT(job.take<control::Lost>(zero), IsEmpty());
}

TEST_F(CoordinatorDeath, AnExitWithoutACloseIsBelievedSoon) {
  job.beating.erase(one);
  job.exit(launcher, one, 0);
  job.pass(Ms(500));
  EXPECT_THAT(job.last<control::Lost>(zero).reason(), HasSubstr("exited with code 0"));
}

TEST_F(CoordinatorDeath, AClosedConnectionHasHalfASecondToComeBack) {
  job.close(one);
  job.pass(Ms(400));
  EXPECT_THAT(job.take<control::Lost>(zero), IsEmpty());
  job.pass(Ms(100));
  EXPECT_EQ(job.last<control::Lost>(zero).reason(), "closed its connection and did not come back within 500 ms");
}

TEST_F(CoordinatorDeath, WhoWasSilentBeforeWasCutOffAndHasTwoSecondsToComeBack) {
  job.beating.erase(one);
  job.pass(Ms(1500));
  job.close(one);  // the old connection's end may come through before the new connection
  job.pass(Ms(1900));
  EXPECT_THAT(job.take<control::Lost>(zero), IsEmpty());
  job.pass(Ms(100));
  EXPECT_EQ(job.last<control::Lost>(zero).reason(), "closed its connection and did not come back within 2000 ms");
}

/// Numbers of processes; a base, as the job asks from its beginning.
struct Gone {
  std::set<std::int64_t> gone;
  std::set<std::int64_t> hidden;
  ProcessSight look_for(const ProcessIdentity& process) const {
    return process.host != SimulatedJob::process_of(0).host || hidden.contains(process.pid) ? ProcessSight::unseen
           : gone.contains(process.pid)                                                     ? ProcessSight::gone
                                                                                            : ProcessSight::runs;
  }
};
/// The same where the coordinator sees the processes of its machine, one of which the launcher did not start.
class SeenProcesses : protected Gone, public RunningJob {
 protected:
  SeenProcesses()
      : RunningJob(JobRules{.workers = 3,
                            .has_launcher = true,
                            .look_for_process = [this](const ProcessIdentity& process) { return look_for(process); }}) {
    control::Join join = SimulatedJob::make_join();
    join.set_pid(kForeignPid);
    foreign = job.join(join);  // with no number of the launcher's
    job.beating.insert(foreign);
  }
  static constexpr int kForeignPid = 77;
  ConnectionId foreign;
};

TEST_F(SeenProcesses, ThatStillRunHaveTheTimeOfSilentOnesToComeBack) {
  job.close(one);
  job.close(foreign);
  job.close(launcher);
  job.pass(Ms(4900));
  EXPECT_THAT(job.take<control::Lost>(zero), IsEmpty());
  job.pass(Ms(100));
  const auto lost = job.take<control::Lost>(zero);
  ASSERT_THAT(lost, SizeIs(3));
  EXPECT_EQ(lost.back().reason(), "was silent for 5.0 s");
}

TEST_F(SeenProcesses, AreNotThoseThatHaveTheSameNumbersElsewhere) {
  control::Join join = SimulatedJob::make_join(control::STANDBY);
  join.set_pid(1003);
  join.set_process(ProcessIdentity{.host = 2, .started = 1, .pid = 1003}.text());
  const auto elsewhere = job.join(join);
  job.close(elsewhere);
  job.pass(Ms(500));
  EXPECT_THAT(job.log(), testing::Contains(HasSubstr("did not come back within 500 ms")));
}

TEST_F(SeenProcesses, ThatCannotBeSeenAnyMoreAreNotGoneForThat) {
  hidden = {kForeignPid};
  job.close(foreign);
  job.pass(Ms(400));
  EXPECT_THAT(job.take<control::Lost>(zero), IsEmpty());
  job.pass(Ms(200));
  EXPECT_EQ(job.last<control::Lost>(zero).reason(), "closed its connection and did not come back within 500 ms");
}

TEST_F(SeenProcesses, ThatAreGoneAreDeadAtOnceUnlessTheLauncherKnowsMore) {
  gone = {kForeignPid, 1003};
  job.close(foreign);
  job.close(one);
  job.pass(Ms(100));
  EXPECT_EQ(job.last<control::Lost>(zero).reason(), "ended without a word");
  EXPECT_THAT(job.take<control::Lost>(zero), IsEmpty());
  job.exit(launcher, one, 9);
  EXPECT_EQ(job.last<control::Lost>(zero).reason(), "was killed by signal 9 (SIGKILL)");
}

TEST_F(CoordinatorDeath, WhoComesBackInTimeGoesOnAsIfNothingHadHappened) {
  job.close(one);
  job.close(zero);
  job.pass(Ms(400));
  const auto back = job.join(rejoin(one));
  const auto again = job.last<control::Welcome>(back);
  EXPECT_EQ(again.member(), welcome.member());
  EXPECT_EQ(again.incarnation(), welcome.incarnation());
  EXPECT_EQ(again.rank(), 1);
  job.inherit(one, back);
  job.beating = {launcher, back};
  job.pass(Ms(300));
  EXPECT_EQ(job.last<control::Lost>(back).member().rank(), 0);  // the other one did not
  EXPECT_EQ(job.last<control::View>(back).number(), 2U);
}

TEST(CoordinatorReconnect, SendsAgainWhatWasSentIntoTheBrokenConnection) {
  SimulatedJob job({.workers = 2});
  const auto a = job.join();
  const auto b = job.join();
  const auto b_welcome = job.last<control::Welcome>(b);
  job.close(a);
  job.pass(Ms(600));
  EXPECT_THAT(job.take<control::Lost>(b), SizeIs(1));
  auto join = SimulatedJob::make_join();
  join.set_pid(1);
  join.set_member(b_welcome.member());
  join.set_incarnation(b_welcome.incarnation());
  join.set_received(1);  // the first view only
  const auto back = job.join(join);
  EXPECT_TRUE(job.is_closed(b));  // half open: the coordinator had not noticed
  EXPECT_THAT(job.take<control::Lost>(back), SizeIs(1));
  const auto views = job.take<control::View>(back);
  ASSERT_THAT(views, SizeIs(1));
  EXPECT_EQ(views[0].number(), 2U);
}

TEST_F(CoordinatorDeath, AMemberThatCountsWronglyIsClosed) {
  auto join = rejoin(one);
  join.set_received(1000);
  const auto back = job.join(join);
  EXPECT_TRUE(job.is_closed(back));
  EXPECT_FALSE(job.is_closed(one));
}

TEST_F(CoordinatorDeath, WhoComesBackTooLateIsFenced) {
  job.close(one);
  job.pass(Ms(600));
  const auto back = job.join(rejoin(one));
  EXPECT_TRUE(job.is_closed(back));
  const auto fenced = job.last<control::Fenced>(back);
  EXPECT_EQ(fenced.term(), 5U);
  EXPECT_THAT(fenced.reason(), HasSubstr("did not come back within 500 ms"));
}

TEST_F(CoordinatorDeath, SilenceIsDeathAfterFiveSeconds) {
  job.pass(Ms(1000));
  job.beating.erase(one);
  job.pass(Ms(4900));
  EXPECT_THAT(job.take<control::Lost>(zero), IsEmpty());
  job.pass(Ms(100));
  EXPECT_EQ(job.last<control::Lost>(zero).reason(), "was silent for 5.0 s");
  EXPECT_THAT(job.last<control::Fenced>(one).reason(), HasSubstr("was silent for 5.0 s"));
  EXPECT_TRUE(job.is_closed(one));
}

TEST_F(CoordinatorDeath, AStoppedCoordinatorBlamesItselfForTheGap) {
  job.pass(Ms(1000));
  job.close(one);
  job.jump(Ms(60'000));
  EXPECT_THAT(job.take<control::Lost>(zero), IsEmpty());
  EXPECT_THAT(job.log().back(), HasSubstr("stood still for 60.0 s"));
  job.pass(Ms(400));
  EXPECT_THAT(job.take<control::Lost>(zero), IsEmpty());
  job.pass(Ms(200));
  EXPECT_THAT(job.take<control::Lost>(zero), SizeIs(1));  // `one` had its half second
}

TEST_F(CoordinatorDeath, TheLaunchersDeathStopsTheJob) {
  job.close(launcher);
  job.pass(Ms(500));
  const auto order = job.last<control::Order>(zero);
  EXPECT_EQ(order.what(), control::Order::STOP);
  EXPECT_THAT(order.reason(), HasSubstr("launcher (pid 1001 on alpha) is gone"));
  job.leave(zero);
  EXPECT_FALSE(job.end());
  job.leave(one);
  ASSERT_TRUE(job.end());
  EXPECT_FALSE(job.end()->succeeded);
}

TEST_F(CoordinatorDeath, WithoutALauncherStragglersAreNotWaitedForLong) {
  job.close(launcher);
  job.pass(Ms(500 + 3900));
  EXPECT_FALSE(job.end());
  job.pass(Ms(200));
  ASSERT_TRUE(job.end());
  EXPECT_THAT(job.end()->reason, HasSubstr("did not end in time: worker 0 (pid 1002 on alpha), worker 1"));
}

TEST_F(CoordinatorDeath, DeathsThatComeTogetherMakeOneView) {
  SimulatedJob crowd({.workers = 5});
  std::vector<ConnectionId> workers(5);
  for (auto& worker : workers) {
    worker = crowd.join();
  }
  crowd.take<control::View>(workers[0]);
  for (int i = 1; i < 5; ++i) {
    crowd.close(workers[static_cast<std::size_t>(i)]);
  }
  crowd.beating = {workers[0]};
  crowd.pass(Ms(1000));
  EXPECT_THAT(crowd.take<control::Lost>(workers[0]), SizeIs(4));
  const auto views = crowd.take<control::View>(workers[0]);
  ASSERT_THAT(views, SizeIs(1));
  EXPECT_EQ(views[0].members_size(), 1);
  EXPECT_THAT(views[0].reason(), HasSubstr("; and 1 more"));
}

TEST_F(CoordinatorDeath, OnlyTheLauncherReportsExits) {
  job.exit(zero, one, 9);
  EXPECT_EQ(job.why_closed(zero), "sent ExitSeen, which is not for a worker to send");
}

TEST_F(CoordinatorDeath, AStallIsToldOnceWithProcessOperationAndProgress) {
  job.steps = {{zero, 121}, {one, 120}};
  job.operations = {{zero, "all-reduce 17"}, {one, "loading"}};
  job.waits = {{zero, true}};
  job.pass(Ms(59'900));
  EXPECT_THAT(job.take<control::Notice>(launcher), IsEmpty());
  job.pass(Ms(30'000));
  const auto notices = job.take<control::Notice>(launcher);
  ASSERT_THAT(notices, SizeIs(1));
  EXPECT_EQ(notices[0].text(), "worker 1 (pid 1003 on alpha) has made no step for 60 s: loading; others wait for it");
  job.steps[one] = 121;
  job.pass(Ms(1000));
  job.pass(Ms(61'000));
  EXPECT_THAT(job.take<control::Notice>(launcher), SizeIs(1));  // it moved, and stopped again
}

TEST_F(CoordinatorDeath, ASilentWorkerIsNotTakenForOneThatWaits) {
  job.steps = {{zero, 120}, {one, 120}};
  job.operations = {{zero, "waiting for others in step 121"}, {one, "waiting for others in step 121"}};
  job.waits = {{zero, true}, {one, true}};
  job.pass(Ms(57'500));
  job.beating.erase(one);
  job.pass(Ms(4'000));
  const auto notices = job.take<control::Notice>(launcher);
  ASSERT_THAT(notices, SizeIs(1));
  EXPECT_THAT(notices[0].text(), HasSubstr("worker 1 (pid 1003 on alpha) has made no step for 60 s: silent for 2."));
  EXPECT_THAT(notices[0].text(), HasSubstr("; others wait for it"));
}

TEST(FindStalled, NamesWhoDoesNotWaitWhileOthersDo) {
  const auto minute = std::chrono::minutes(1);
  const std::vector<StepWatch> workers = {{5, minute, true}, {4, minute, false}, {5, minute, true}};
  EXPECT_THAT(find_stalled(workers, minute), ElementsAre(1));
}

TEST(FindStalled, NamesWhoStandsWhileOthersGoOn) {
  const auto minute = std::chrono::minutes(1);
  const std::vector<StepWatch> workers = {{5, minute, false}, {40, Ms(3), false}};
  EXPECT_THAT(find_stalled(workers, minute), ElementsAre(0));
}

TEST(FindStalled, NamesTheLastWhenAllWait) {
  const auto minute = std::chrono::minutes(1);
  const std::vector<StepWatch> workers = {{5, minute, true}, {4, minute, true}, {4, minute, true}};
  EXPECT_THAT(find_stalled(workers, minute), ElementsAre(1));
}

TEST(FindStalled, NamesNobodyWhileAllEvaluateOrOneIsAlone) {
  const auto minute = std::chrono::minutes(1);
  EXPECT_THAT(find_stalled(std::vector<StepWatch>{{5, minute, false}, {5, minute, false}}, minute), IsEmpty());
  EXPECT_THAT(find_stalled(std::vector<StepWatch>{{5, minute, false}}, minute), IsEmpty());
  EXPECT_THAT(find_stalled(std::vector<StepWatch>{{5, Ms(9), true}, {5, Ms(9), false}}, minute), IsEmpty());
}

}  // namespace
}  // namespace distbelief
