// A coordinator that takes the place of one that was killed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/simulated_job.h"

namespace distbelief {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Ms = SimulatedJob::Ms;

control::LeasePlan lease_plan(std::int64_t samples, std::int64_t epochs) {
  control::LeasePlan message;
  message.set_samples_per_epoch(samples);
  message.set_epochs(epochs);
  return message;
}

control::OpenLease held_lease(const control::LeaseGrant& grant) {
  control::OpenLease lease;
  lease.set_lease(grant.lease());
  lease.set_epoch(grant.epoch());
  lease.set_first(grant.first());
  lease.set_count(grant.count());
  return lease;
}

/// Two workers and a server, which have begun.
struct ServedBefore {
  ServedBefore() : workers{job.join(), job.join()}, server(job.join(control::SERVER)) {
    for (const ConnectionId member : {workers[0], workers[1], server}) {
      welcomes.push_back(job.last<control::Welcome>(member));
    }
  }
  SimulatedJob job{{.workers = 2, .servers = 1}};
  std::vector<ConnectionId> workers;
  ConnectionId server;
  std::vector<control::Welcome> welcomes;
};

TEST(CoordinatorReturn, MembersGoOnUnderTheNextTermWithNoNewView) {
  SimulatedJob killed({.workers = 2});
  const auto a = killed.last<control::Welcome>(killed.join());
  const auto b = killed.last<control::Welcome>(killed.join());
  SimulatedJob job(SimulatedJob::Killed{killed, Ms(700)});
  for (const control::Welcome& old : {a, b}) {
    const auto member = job.join(SimulatedJob::back(old, 1));
    const auto welcome = job.last<control::Welcome>(member);
    EXPECT_EQ(welcome.member(), old.member());
    EXPECT_EQ(welcome.incarnation(), old.incarnation());
    EXPECT_EQ(welcome.rank(), old.rank());
    EXPECT_EQ(welcome.term(), SimulatedJob::kTerm + 1);
    EXPECT_EQ(welcome.received(), 0U);  // counts begin again
    const auto view = job.last<control::View>(member);
    EXPECT_EQ(view.number(), 1U);  // which whoever has it ignores
    EXPECT_EQ(view.members_size(), 2);
    job.beating.insert(member);
  }
  job.pass(Ms(20'000));
  EXPECT_FALSE(job.end().has_value());
  EXPECT_EQ(job.state().status(job.now()).view(), 1U);
}

TEST(CoordinatorReturn, NobodyIsMissedBeforeTheGraceHasPassed) {
  SimulatedJob killed({.workers = 2});
  const auto a = killed.last<control::Welcome>(killed.join());
  killed.join();
  SimulatedJob job(SimulatedJob::Killed{killed});
  const auto member = job.join(SimulatedJob::back(a, 1));
  job.beating = {member};
  job.take<control::View>(member);
  job.pass(Ms(4'900));
  EXPECT_THAT(job.take<control::Lost>(member), IsEmpty());
  job.pass(Ms(300));
  const auto lost = job.last<control::Lost>(member);
  EXPECT_EQ(lost.member().rank(), 1);
  EXPECT_THAT(lost.reason(), HasSubstr("did not come back within 5."));
  EXPECT_EQ(job.last<control::View>(member).number(), 2U);
}

TEST(CoordinatorReturn, WhoWasSeenToExitMeanwhileIsNotWaitedFor) {
  SimulatedJob killed({.workers = 2, .has_launcher = true});
  const auto launcher = killed.join(control::LAUNCHER);
  const auto launcher_welcome = killed.last<control::Welcome>(launcher);
  const auto a = killed.last<control::Welcome>(killed.join());
  const auto b = killed.join();
  SimulatedJob job(SimulatedJob::Killed{killed});
  const auto again = job.join(SimulatedJob::back(launcher_welcome, 3));
  const auto worker = job.join(SimulatedJob::back(a, 1));
  job.beating = {again, worker};
  job.exit(again, b, 9);
  job.pass(Ms(100));
  EXPECT_THAT(job.last<control::Lost>(worker).reason(), HasSubstr("was killed by signal 9"));
  EXPECT_EQ(job.last<control::View>(worker).members_size(), 1);
}

TEST(CoordinatorReturn, DeathsThatWereNotToldAreInTheNextView) {
  SimulatedJob killed({.workers = 2});
  const auto a = killed.join();
  const auto a_welcome = killed.last<control::Welcome>(a);
  const auto b = killed.join();
  killed.beating = {a};
  killed.close(b);
  while (killed.saved().members(1).state() != control::MemberStatus::LOST) {
    killed.pass(Ms(100));
  }
  SimulatedJob job(SimulatedJob::Killed{killed});
  const auto member = job.join(SimulatedJob::back(a_welcome, 1));
  job.pass(Ms(100));
  const auto view = job.last<control::View>(member);
  EXPECT_EQ(view.members_size(), 1);
  EXPECT_GE(view.number(), 2U);
  EXPECT_FALSE(view.peaceful());
}

TEST(CoordinatorReturn, OneThatTheCoordinatorBeforeGaveUpStaysOut) {
  SimulatedJob killed({.workers = 2});
  const auto a = killed.join();
  const auto b = killed.join();
  const auto b_welcome = killed.last<control::Welcome>(b);
  killed.beating = {a};
  killed.close(b);
  killed.pass(Ms(700));
  SimulatedJob job(SimulatedJob::Killed{killed});
  const auto zombie = job.join(SimulatedJob::back(b_welcome, 1));
  EXPECT_THAT(job.last<control::Fenced>(zombie).reason(), HasSubstr("gave this process up"));
}

TEST(CoordinatorReturn, RanksMembersAndIncarnationsAreNeverGivenTwice) {
  SimulatedJob killed({.workers = 1});
  const auto a = killed.last<control::Welcome>(killed.join());
  const auto late = killed.last<control::Welcome>(killed.join());
  SimulatedJob job(SimulatedJob::Killed{killed});
  job.join(SimulatedJob::back(a, 2));
  job.join(SimulatedJob::back(late, 1));
  const auto newest = job.last<control::Welcome>(job.join());
  EXPECT_EQ(newest.rank(), 2);
  EXPECT_GT(newest.member(), late.member());
  EXPECT_GT(newest.incarnation(), late.incarnation());
}

TEST(CoordinatorReturn, AStopThatWasOrderedIsOrderedAgain) {
  SimulatedJob killed({.workers = 1});
  const auto a = killed.last<control::Welcome>(killed.join());
  control::Order order;
  order.set_what(control::Order::STOP);
  order.set_reason("enough");
  killed.say(killed.join(control::OBSERVER), order);
  SimulatedJob job(SimulatedJob::Killed{killed});
  const auto member = job.join(SimulatedJob::back(a, 1));
  const auto told = job.last<control::Order>(member);
  EXPECT_EQ(told.reason(), "enough");
  EXPECT_EQ(told.term(), SimulatedJob::kTerm + 1);
  job.leave(member);
  ASSERT_TRUE(job.end().has_value());
  EXPECT_TRUE(job.end()->succeeded);
}

TEST(CoordinatorReturn, AJobThatHadEndedTellsItsLauncherSo) {
  SimulatedJob killed({.workers = 1, .has_launcher = true});
  const auto launcher = killed.last<control::Welcome>(killed.join(control::LAUNCHER));
  killed.leave(killed.join());
  ASSERT_TRUE(killed.end().has_value());
  SimulatedJob job(SimulatedJob::Killed{killed});
  job.pass(Ms(200));
  EXPECT_FALSE(job.end().has_value());  // there is nobody to tell
  const auto again = job.join(SimulatedJob::back(launcher, 5));
  ASSERT_TRUE(job.end().has_value());
  EXPECT_TRUE(job.last<control::Ended>(again).succeeded());
}

TEST(CoordinatorReturn, ACoordinatorOfThePastIsNotListenedTo) {
  SimulatedJob old({.workers = 1});
  const auto a = old.last<control::Welcome>(old.join());
  SimulatedJob fresh(SimulatedJob::Killed{old});
  auto welcome = fresh.last<control::Welcome>(fresh.join(SimulatedJob::back(a, 1)));
  const auto astray = old.join(SimulatedJob::back(welcome, 1));
  EXPECT_TRUE(old.is_closed(astray));
}

TEST(CoordinatorReturn, LeasesAreAskedFromServersOnceAllAreBack) {
  ServedBefore before;
  before.job.say(before.server, lease_plan(100, 1));
  before.job.say(before.workers[0], lease_request());
  before.job.say(before.workers[1], lease_request());
  const auto first = before.job.last<control::LeaseGrant>(before.workers[0]);
  const auto second = before.job.last<control::LeaseGrant>(before.workers[1]);

  SimulatedJob job(SimulatedJob::Killed{before.job});
  const auto server = job.join(SimulatedJob::back(before.welcomes[2], 1));
  auto holds = SimulatedJob::back(before.welcomes[0], 2);
  *holds.add_holds() = held_lease(first);
  const auto a = job.join(holds);
  EXPECT_THAT(job.take<control::LeaseQuestion>(server), IsEmpty());
  auto holds_too = SimulatedJob::back(before.welcomes[1], 2);
  *holds_too.add_holds() = held_lease(second);
  const auto b = job.join(holds_too);
  const auto question = job.last<control::LeaseQuestion>(server);
  EXPECT_FALSE(question.for_plan());

  job.say(a, lease_done(first.lease()));  // meanwhile they go on
  job.say(a, lease_request());
  control::LeaseReports reports;
  reports.set_answers(question.number());
  reports.add_reports()->set_low_water(3);
  job.say(server, reports);
  const auto asked = job.last<control::LeaseQuestion>(server);
  EXPECT_TRUE(asked.for_plan());
  EXPECT_EQ(asked.number(), question.number());
  ASSERT_EQ(asked.reports_size(), 1);
  EXPECT_EQ(asked.reports(0).low_water(), 3U);
  ASSERT_EQ(asked.held_size(), 2);
  EXPECT_EQ(asked.held(0).lease(), first.lease());
  EXPECT_GT(asked.first_lease(), second.lease());
  EXPECT_THAT(job.take<control::LeaseGrant>(a), IsEmpty());

  auto known = lease_plan(100, 1);
  known.set_first_position(20);
  known.set_answers(question.number());
  job.say(server, known);
  const auto next = job.last<control::LeaseGrant>(a);
  EXPECT_EQ(next.first(), 20);
  EXPECT_GT(next.lease(), second.lease());
  EXPECT_EQ(next.low_water(), second.lease());  // the first was done while nobody knew of it
  job.say(b, lease_done(second.lease()));
  EXPECT_THAT(job.take<control::Fenced>(b), IsEmpty());
}

TEST(CoordinatorReturn, WhoDoesNotComeBackIsFencedBeforeLeasesAreAskedFor) {
  ServedBefore before;
  before.job.say(before.server, lease_plan(100, 1));
  before.job.say(before.workers[0], lease_request());
  SimulatedJob job(SimulatedJob::Killed{before.job});
  const auto server = job.join(SimulatedJob::back(before.welcomes[2], 1));
  const auto b = job.join(SimulatedJob::back(before.welcomes[1], 1));
  job.beating = {server, b};
  job.say(b, lease_request());
  job.pass(Ms(5'300));
  EXPECT_THAT(job.take<control::LeaseQuestion>(server), IsEmpty());
  control::FenceConfirmed confirmed;
  confirmed.set_incarnation(before.welcomes[0].incarnation());
  job.say(server, confirmed);
  const auto question = job.last<control::LeaseQuestion>(server);
  control::LeaseReports reports;
  reports.set_answers(question.number());
  job.say(server, reports);
  EXPECT_EQ(job.last<control::LeaseQuestion>(server).held_size(), 0);
}

TEST(CoordinatorReturn, ALossMeanwhileMakesTheQuestionBeAskedAgain) {
  ServedBefore before;
  before.job.say(before.server, lease_plan(100, 1));
  before.job.say(before.workers[0], lease_request());
  const auto held = before.job.last<control::LeaseGrant>(before.workers[0]);
  SimulatedJob job(SimulatedJob::Killed{before.job});
  const auto server = job.join(SimulatedJob::back(before.welcomes[2], 1));
  auto holds = SimulatedJob::back(before.welcomes[0], 2);
  *holds.add_holds() = held_lease(held);
  const auto a = job.join(holds);
  const auto b = job.join(SimulatedJob::back(before.welcomes[1], 1));
  job.beating = {server, b};
  job.say(b, lease_request());
  const auto question = job.last<control::LeaseQuestion>(server);
  control::LeaseReports reports;
  reports.set_answers(question.number());
  job.say(server, reports);
  job.close(a);
  job.pass(Ms(700));
  auto old = lease_plan(100, 1);
  old.set_answers(question.number());
  job.say(server, old);  // of when the lost one still held a lease
  EXPECT_THAT(job.take<control::LeaseGrant>(b), IsEmpty());
  control::FenceConfirmed confirmed;
  confirmed.set_incarnation(before.welcomes[0].incarnation());
  job.take<control::LeaseQuestion>(server);
  job.say(server, confirmed);
  const auto again = job.last<control::LeaseQuestion>(server);
  EXPECT_GT(again.number(), question.number());
  reports.set_answers(again.number());
  job.say(server, reports);
  EXPECT_EQ(job.last<control::LeaseQuestion>(server).held_size(), 0);
  old.set_answers(again.number());
  job.say(server, old);
  EXPECT_EQ(job.last<control::LeaseGrant>(b).first(), 0);
}

TEST(CoordinatorReturn, APlanThatWasNeverHeardIsAskedFromNobody) {
  ServedBefore before;
  SimulatedJob job(SimulatedJob::Killed{before.job});
  const auto a = job.join(SimulatedJob::back(before.welcomes[0], 1));
  job.join(SimulatedJob::back(before.welcomes[1], 1));
  const auto server = job.join(SimulatedJob::back(before.welcomes[2], 1));
  job.say(a, lease_request());
  job.pass(Ms(200));
  EXPECT_THAT(job.take<control::LeaseQuestion>(server), IsEmpty());
  job.say(server, lease_plan(100, 1));  // it waits until somebody has heard it
  EXPECT_EQ(job.last<control::LeaseGrant>(a).count(), 10);
}

TEST(CoordinatorReturn, DiesOfAnEventOnceWhoeverSaysThatItIsTime) {
  SimulatedJob killed({.workers = 2, .deaths = {"kill coordinator at 40%"}});
  const auto a = killed.join();
  const auto a_welcome = killed.last<control::Welcome>(a);
  const auto b_welcome = killed.last<control::Welcome>(killed.join());
  control::ChaosDue due;
  due.set_event("kill coordinator at 40%");
  killed.say(a, due);
  EXPECT_EQ(killed.deaths(), 1);
  SimulatedJob job(SimulatedJob::Killed{killed});
  for (const control::Welcome& welcome : {a_welcome, b_welcome}) {
    job.say(job.join(SimulatedJob::back(welcome, 1)), due);
  }
  EXPECT_EQ(job.deaths(), 0);
  due.set_event("of something else");
  const auto again = job.join(SimulatedJob::back(a_welcome, 1));
  job.say(again, due);
  EXPECT_TRUE(job.is_closed(again));
}

TEST(CoordinatorReturn, NothingIsSentThatIsNotWrittenDown) {
  CoordinatorState state({.token = "t", .workers = 1}, 1, Clock::time_point());
  const auto actions = state.take_actions();
  ASSERT_THAT(actions, SizeIs(1));
  EXPECT_TRUE(std::holds_alternative<CoordinatorState::Persist>(actions[0]));
  control::Join join;
  join.set_token("t");
  join.set_rank(-1);
  join.set_role(control::WORKER);
  state.received(ConnectionId{1}, join, Clock::time_point());
  const auto joined = state.take_actions();
  ASSERT_FALSE(joined.empty());
  const auto* saved = std::get_if<CoordinatorState::Persist>(&joined[0]);
  ASSERT_NE(saved, nullptr);
  EXPECT_EQ(saved->job.view(), 1U);
  EXPECT_EQ(saved->job.members_size(), 1);
  state.received(ConnectionId{1}, control::Heartbeat(), Clock::time_point());
  for (const CoordinatorState::Action& action : state.take_actions()) {
    EXPECT_FALSE(std::holds_alternative<CoordinatorState::Persist>(action)) << "heartbeats change nothing";
  }
}

TEST(CoordinatorReturn, TheJobIsAsOldAsItIsHoweverLongNothingWasWrittenDown) {
  SimulatedJob killed({.workers = 1});
  const auto worker = killed.join();
  killed.beating = {worker};
  killed.pass(Ms(3'600'000));
  SimulatedJob job(SimulatedJob::Killed{killed, Ms(700)});
  EXPECT_NEAR(job.state().status(job.now()).elapsed_seconds(), 3600.7, 0.05);
  SimulatedJob next(SimulatedJob::Killed{job, Ms(300)});
  EXPECT_NEAR(next.state().status(next.now()).elapsed_seconds(), 3601, 0.05);
}

}  // namespace
}  // namespace distbelief
