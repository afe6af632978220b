#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/simulated_job.h"

namespace distbelief {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using Ms = std::chrono::milliseconds;

TEST(CoordinatorJoin, IssuesTheFirstViewWhenAllAreThere) {
  SimulatedJob job({.workers = 2, .servers = 1});
  const auto first = job.join();
  const auto server = job.join(control::SERVER);
  EXPECT_THAT(job.take<control::View>(first), IsEmpty());
  const auto second = job.join();
  for (const auto connection : {first, server, second}) {
    const auto view = job.last<control::View>(connection);
    EXPECT_EQ(view.number(), 1U);
    EXPECT_EQ(view.term(), 5U);
    EXPECT_TRUE(view.complete());
    ASSERT_EQ(view.members_size(), 3);
    EXPECT_EQ(view.members(0).role(), control::WORKER);
    EXPECT_EQ(view.members(1).role(), control::WORKER);
    EXPECT_EQ(view.members(2).role(), control::SERVER);
    EXPECT_EQ(view.members(2).rank(), 2);
    EXPECT_EQ(view.members(2).pid(), 1002);
  }
  EXPECT_EQ(job.last<control::Welcome>(server).rank(), 2);
  EXPECT_EQ(job.last<control::Welcome>(second).rank(), 1);
}

TEST(CoordinatorJoin, GivesTheRanksThatAreWanted) {
  SimulatedJob job({.workers = 2, .servers = 1});
  const auto two = job.join(control::ANY, 2);
  const auto one = job.join(control::ANY, 1);
  const auto zero = job.join(control::ANY, 0);
  const auto view = job.last<control::View>(zero);
  EXPECT_EQ(view.members(0).pid(), 1000 + static_cast<int>(zero.value));
  EXPECT_EQ(view.members(1).pid(), 1000 + static_cast<int>(one.value));
  EXPECT_EQ(view.members(2).pid(), 1000 + static_cast<int>(two.value));
  EXPECT_EQ(view.members(2).role(), control::SERVER);
}

TEST(CoordinatorJoin, GivesWhoeverWantsAnyRoleWhatIsLacking) {
  SimulatedJob job({.workers = 1, .servers = 1});
  EXPECT_EQ(job.last<control::Welcome>(job.join(control::ANY)).role(), control::WORKER);
  EXPECT_EQ(job.last<control::Welcome>(job.join(control::ANY)).role(), control::SERVER);
}

TEST(CoordinatorJoin, RefusesAndSaysBothSides) {
  SimulatedJob job({.workers = 2});
  const auto refusal = [&](const control::Join& join) {
    const auto connection = job.join(join);
    EXPECT_TRUE(job.is_closed(connection));
    EXPECT_THAT(job.take<control::Welcome>(connection), IsEmpty());
    return job.last<control::Refused>(connection).reason();
  };
  auto join = SimulatedJob::make_join();
  join.set_version("2.0");
  EXPECT_EQ(refusal(join), "the job runs version 1.0, this process is version 2.0");
  join = SimulatedJob::make_join();
  join.set_token("Secret");
  EXPECT_EQ(refusal(join), "its token is not the job's");
  join = SimulatedJob::make_join();
  join.set_configuration("xyz");
  EXPECT_EQ(refusal(join), "the job's configuration is abc, this process has xyz");
  EXPECT_EQ(refusal(SimulatedJob::make_join(control::WORKER, 2)), "rank 2 is wanted, but the job has 2 processes");
  EXPECT_EQ(refusal(SimulatedJob::make_join(control::SERVER, 1)), "rank 1 is a worker's in this job, not a server's");
  EXPECT_EQ(refusal(SimulatedJob::make_join(control::SERVER)), "all 0 servers of the job are there already");
  job.join(control::WORKER, 1);
  EXPECT_THAT(refusal(SimulatedJob::make_join(control::WORKER, 1)), HasSubstr("rank 1 is held by worker 1 (pid "));
}

TEST(CoordinatorJoin, ObserversAndLaunchersNeedNoConfigurationAndTakeNoPlace) {
  SimulatedJob job({.workers = 1, .has_launcher = true});
  auto join = SimulatedJob::make_join(control::OBSERVER);
  join.set_configuration("");
  const auto observer = job.join(join);
  EXPECT_EQ(job.last<control::Welcome>(observer).rank(), -1);
  const auto worker = job.join();
  EXPECT_THAT(job.take<control::View>(worker), IsEmpty());  // the launcher is not there yet
  join.set_role(control::LAUNCHER);
  const auto launcher = job.join(join);
  EXPECT_EQ(job.last<control::View>(worker).members_size(), 1);
  EXPECT_EQ(job.last<control::View>(launcher).members_size(), 1);
  EXPECT_THAT(job.last<control::Refused>(job.join(join)).reason(), HasSubstr("has a launcher already"));
}

TEST(CoordinatorJoin, RefusesTheJobWithTheNamesOfTheMissing) {
  SimulatedJob job({.workers = 2, .servers = 1, .join_limit = Ms(3000)});
  const auto worker = job.join();
  job.beating = {worker};
  job.pass(Ms(2900));
  EXPECT_THAT(job.take<control::Order>(worker), IsEmpty());
  job.pass(Ms(200));
  const auto order = job.last<control::Order>(worker);
  EXPECT_EQ(order.what(), control::Order::STOP);
  EXPECT_EQ(order.term(), 5U);
  EXPECT_EQ(order.reason(), "2 of 3 processes did not join within 3 s; missing: worker 1, server 2");
  job.leave(worker);
  ASSERT_TRUE(job.end());
  EXPECT_FALSE(job.end()->succeeded);
  EXPECT_EQ(job.end()->reason, order.reason());
}

TEST(CoordinatorJoin, SaysThatTheLauncherIsMissing) {
  SimulatedJob job({.workers = 1, .has_launcher = true, .join_limit = Ms(1000)});
  job.beating = {job.join()};
  job.pass(Ms(1100));
  EXPECT_THAT(job.log().back(), HasSubstr("missing: launcher"));
}

TEST(CoordinatorJoin, APlaceBecomesFreeWhenItsHolderGoesBeforeTheBeginning) {
  SimulatedJob job({.workers = 2});
  const auto dies = job.join(control::WORKER, 0);
  job.close(dies);
  job.pass(Ms(600));
  const auto other = job.join(control::WORKER, 0);
  EXPECT_EQ(job.last<control::Welcome>(other).rank(), 0);
}

TEST(CoordinatorJoin, AProcessThatEndsBeforeItJoinsEndsTheWait) {
  SimulatedJob job({.workers = 2, .has_launcher = true});
  const auto launcher = job.join(control::LAUNCHER);
  const auto worker = job.join();
  job.exit(launcher, ConnectionId{77}, 11, true);
  EXPECT_THAT(job.take<control::Order>(worker), IsEmpty());  // it is started again
  job.exit(launcher, ConnectionId{77}, 11);
  EXPECT_EQ(job.last<control::Order>(worker).reason(),
            "newcomer 77 (pid 1077 on alpha) was killed by signal 11 (SIGSEGV) before the job began");
}

TEST(CoordinatorJoin, AWorkerThatFailsBeforeTheBeginningEndsTheWait) {
  SimulatedJob job({.workers = 3});
  const auto first = job.join();
  job.leave(job.join(control::WORKER, 1), false, "no such file: train.csv");
  EXPECT_THAT(job.last<control::Order>(first).reason(), HasSubstr("failed: no such file: train.csv"));
}

TEST(CoordinatorJoin, ARestartedProcessGetsItsPlaceAtOnce) {
  SimulatedJob job({.workers = 1, .servers = 1, .has_launcher = true});
  const auto launcher = job.join(control::LAUNCHER);
  const auto worker = job.join();
  job.exit(launcher, worker, 9, true);
  const auto again = job.join();  // before the old connection was seen to close
  EXPECT_EQ(job.last<control::Welcome>(again).rank(), 0);
}

TEST(CoordinatorJoin, TakesLateMembersUnderNewRanks) {
  SimulatedJob job({.workers = 2});
  const auto first = job.join();
  const auto second = job.join();
  job.beating = {first};
  job.close(second);
  job.pass(Ms(700));
  EXPECT_FALSE(job.last<control::View>(first).complete());
  const auto late = job.join(control::ANY);
  EXPECT_EQ(job.last<control::Welcome>(late).rank(), 2);
  job.pass(Ms(100));
  for (const auto connection : {first, late}) {
    const auto view = job.last<control::View>(connection);
    EXPECT_EQ(view.number(), 3U);
    EXPECT_TRUE(view.complete());
    EXPECT_EQ(view.reason(), "worker 2 (pid 1003 on alpha) joined");
    ASSERT_EQ(view.members_size(), 2);
    EXPECT_EQ(view.members(1).rank(), 2);
  }
  EXPECT_THAT(job.last<control::Refused>(job.join(control::WORKER, 1)).reason(), HasSubstr("rank 1 was held by"));
}

TEST(CoordinatorJoin, ClosesTheDoorWhenTold) {
  SimulatedJob job({.workers = 1, .takes_late_members = false});
  job.join();
  EXPECT_EQ(job.last<control::Refused>(job.join()).reason(), "the job has begun and takes nobody in any more");
}

TEST(CoordinatorJoin, WhoSpeaksBeforeJoiningIsClosed) {
  SimulatedJob job({.workers = 1});
  const ConnectionId stranger{99};
  job.say(stranger, control::Heartbeat());
  EXPECT_EQ(job.why_closed(stranger), "sent a Heartbeat before it joined");
  const ConnectionId noise{98};
  job.garbage(noise);
  EXPECT_EQ(job.why_closed(noise), "sent 3 bytes that are no Join");
}

TEST(CoordinatorJoin, AJoinWhoseWelcomeGotLostIsTheSameMember) {
  SimulatedJob job({.workers = 1});
  auto join = SimulatedJob::make_join();
  join.set_nonce(42);
  join.set_pid(7);
  const auto first = job.join(join);
  const auto welcome = job.last<control::Welcome>(first);
  const auto again = job.join(join);
  EXPECT_TRUE(job.is_closed(first));
  EXPECT_EQ(job.last<control::Welcome>(again).member(), welcome.member());
  EXPECT_EQ(job.last<control::View>(again).number(), 1U);
}

TEST(CoordinatorJoin, ComparesTokensWhole) {
  EXPECT_TRUE(equal_in_constant_time("abc", "abc"));
  EXPECT_FALSE(equal_in_constant_time("abc", "abd"));
  EXPECT_FALSE(equal_in_constant_time("bbc", "abc"));
  EXPECT_FALSE(equal_in_constant_time("abc", "abcd"));
  EXPECT_FALSE(equal_in_constant_time("", "a"));
}

}  // namespace
}  // namespace distbelief
