#include "cluster/coordinator_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/simulated_job.h"

namespace distbelief {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using Ms = SimulatedJob::Ms;

TEST(CoordinatorState, AViewIsPeacefulWhenOnlyThoseAreMissingWhoWereDone) {
  for (const bool succeeded : {true, false}) {
    SimulatedJob job({.workers = 3});
    const auto a = job.join();
    const auto b = job.join();
    const auto c = job.join();
    job.beating = {a, b, c};
    EXPECT_TRUE(job.last<control::View>(a).peaceful());
    job.leave(b, succeeded);
    job.beating.erase(b);
    job.pass(std::chrono::milliseconds(500));
    const control::View second = job.last<control::View>(a);
    EXPECT_EQ(second.peaceful(), succeeded);
    EXPECT_EQ(second.failed_size(), succeeded ? 0 : 1);
    job.close(c);
    job.beating.erase(c);
    job.pass(std::chrono::milliseconds(700));
    const control::View third = job.last<control::View>(a);
    EXPECT_FALSE(third.peaceful());
    EXPECT_EQ(third.failed_size(), succeeded ? 1 : 2);
  }
}

TEST(CoordinatorState, EndsWellWhenTheLastWorkerLeft) {
  SimulatedJob job({.workers = 2, .servers = 1});
  const auto zero = job.join();
  const auto one = job.join();
  const auto server = job.join(control::SERVER);
  job.leave(zero);
  EXPECT_THAT(job.take<control::Order>(server), IsEmpty());
  job.leave(one);
  EXPECT_EQ(job.last<control::Order>(server).reason(), "all workers are done");
  EXPECT_FALSE(job.end());
  job.leave(server);
  ASSERT_TRUE(job.end());
  EXPECT_TRUE(job.end()->succeeded);
  EXPECT_TRUE(job.state().ended());
}

TEST(CoordinatorState, EndsWellWhenSomeDiedAndTheRestFinished) {
  SimulatedJob job({.workers = 2});
  const auto zero = job.join();
  job.close(job.join());
  job.beating = {zero};
  job.pass(Ms(1000));
  job.leave(zero);
  ASSERT_TRUE(job.end());
  EXPECT_TRUE(job.end()->succeeded);
}

TEST(CoordinatorState, EndsBadlyWhenAllWorkersAreLostOrOneFailed) {
  SimulatedJob lost({.workers = 1});
  lost.close(lost.join());
  lost.pass(Ms(1000));
  ASSERT_TRUE(lost.end());
  EXPECT_FALSE(lost.end()->succeeded);
  EXPECT_EQ(lost.end()->reason, "all workers are lost");

  SimulatedJob failed({.workers = 2});
  const auto zero = failed.join();
  failed.leave(failed.join(), false, "the loss is not finite");
  failed.leave(zero);
  ASSERT_TRUE(failed.end());
  EXPECT_FALSE(failed.end()->succeeded);
  EXPECT_EQ(failed.end()->reason, "worker 1 (pid 1002 on alpha) failed: the loss is not finite");
}

TEST(CoordinatorState, SaysThatItEndedForBadInputOnlyWhenThatIsWhatEndedIt) {
  SimulatedJob unreadable({.workers = 2, .has_launcher = true});
  const auto launcher = unreadable.join(control::LAUNCHER);
  const auto one = unreadable.join();
  unreadable.leave(unreadable.join(), false, "data.csv: no such file", true);
  unreadable.leave(one, false, "data.csv: no such file", true);
  EXPECT_TRUE(unreadable.last<control::Ended>(launcher).bad_input());

  SimulatedJob killed({.workers = 2, .has_launcher = true});
  const auto its_launcher = killed.join(control::LAUNCHER);
  const auto trains_on = killed.join();
  killed.leave(killed.join(), false, "data.csv: no such file", true);
  killed.pass(Ms(100));
  killed.close(trains_on);
  killed.pass(Ms(1000));
  const auto ended = killed.last<control::Ended>(its_launcher);
  EXPECT_FALSE(ended.bad_input());
  EXPECT_EQ(ended.reason(), "all workers are lost");
}

TEST(CoordinatorState, IsNotEndedByAFailureThatItWentOnAfter) {
  SimulatedJob job({.workers = 2, .servers = 1, .has_launcher = true});
  const auto launcher = job.join(control::LAUNCHER);
  const auto early = job.join();
  const auto late = job.join();
  const auto server = job.join(control::SERVER);
  job.beating = {launcher, late, server};
  job.leave(early, false, "data.csv: no such file", true);
  job.pass(Ms(3000));
  job.leave(server, false, "the disk is gone");
  job.pass(Ms(100));
  job.leave(late, false, "no server answers");
  const auto ended = job.last<control::Ended>(launcher);
  EXPECT_EQ(ended.reason(), "server 2 (pid 1004 on alpha) failed: the disk is gone");
  EXPECT_FALSE(ended.bad_input());
}

TEST(CoordinatorState, OneThatDiesWhenOthersAreDoneSpoilsNothing) {
  SimulatedJob job({.workers = 2});
  const auto dies = job.join();
  job.leave(job.join(), true, kAllDone);
  job.close(dies);
  job.pass(Ms(1000));
  ASSERT_TRUE(job.end());
  EXPECT_TRUE(job.end()->succeeded);
}

TEST(CoordinatorState, TellsWhoIsStillThereThatItIsOver) {
  SimulatedJob job({.workers = 1, .has_launcher = true});
  const auto launcher = job.join(control::LAUNCHER);
  const auto worker = job.join();
  job.leave(worker);
  const auto ended = job.last<control::Ended>(launcher);
  EXPECT_TRUE(ended.succeeded());
  EXPECT_EQ(ended.reason(), "all workers are done");
  EXPECT_THAT(job.last<control::Refused>(job.join()).reason(), HasSubstr("the job is over"));
}

TEST(CoordinatorState, ALeaverIsToldThatItWasHeard) {
  SimulatedJob job({.workers = 2});
  const auto worker = job.join();
  job.say(worker, control::Notice());
  job.leave(worker);
  EXPECT_EQ(job.last<control::Heard>(worker).received(), 2U);
  EXPECT_TRUE(job.is_closed(worker));
}

TEST(CoordinatorState, LeavesGiveOneViewLater) {
  SimulatedJob job({.workers = 3});
  const auto zero = job.join();
  const auto one = job.join();
  const auto two = job.join();
  job.take<control::View>(two);
  job.leave(zero);
  job.leave(one);
  job.beating = {two};
  job.pass(Ms(200));
  EXPECT_THAT(job.take<control::View>(two), IsEmpty());
  job.pass(Ms(100));
  EXPECT_EQ(job.last<control::View>(two).members_size(), 1);
  EXPECT_THAT(job.take<control::Lost>(two), IsEmpty());
}

TEST(CoordinatorState, ServersHearAtOnceThatTheLastWorkerHasLeft) {
  SimulatedJob job({.workers = 1, .servers = 2});
  const auto worker = job.join();
  const auto first = job.join(control::SERVER);
  const auto second = job.join(control::SERVER);
  job.take<control::View>(second);
  job.leave(worker);
  job.pass(Ms(20));
  EXPECT_EQ(job.last<control::View>(second).members_size(), 2);
  job.leave(first);
  job.pass(Ms(20));
  EXPECT_EQ(job.last<control::View>(second).members_size(), 1);
}

TEST(CoordinatorState, OrdersGoToAllUnderItsTerm) {
  SimulatedJob job({.workers = 2});
  const auto zero = job.join();
  const auto one = job.join();
  const auto observer = job.join(control::OBSERVER);
  control::Order order;
  order.set_what(control::Order::CHECKPOINT);
  order.set_reason("before the power cut");
  order.set_term(99);
  job.say(observer, order);
  for (const auto connection : {zero, one}) {
    const auto got = job.last<control::Order>(connection);
    EXPECT_EQ(got.what(), control::Order::CHECKPOINT);
    EXPECT_EQ(got.term(), 5U);
  }
  order.set_what(control::Order::STOP);
  job.say(observer, order);
  EXPECT_EQ(job.last<control::Order>(one).what(), control::Order::STOP);
  job.say(observer, order);
  EXPECT_THAT(job.take<control::Order>(one), IsEmpty());  // once is enough
}

TEST(CoordinatorState, WorkersDoNotOrder) {
  SimulatedJob job({.workers = 1});
  const auto worker = job.join();
  control::Order order;
  order.set_what(control::Order::STOP);
  job.say(worker, order);
  EXPECT_EQ(job.why_closed(worker), "sent an Order, which is not for a worker to send");
}

TEST(CoordinatorState, NobodySendsWhatOnlyTheCoordinatorSays) {
  SimulatedJob job({.workers = 1});
  const auto worker = job.join();
  job.say(worker, control::View());
  EXPECT_EQ(job.why_closed(worker), "sent a View, which is not for a worker to send");
}

TEST(CoordinatorState, AStopThatIsNotFollowedEndsAtItsLimit) {
  SimulatedJob job({.workers = 1, .stop_limit = Ms(2000)});
  const auto worker = job.join();
  job.beating = {worker};
  job.state().stop("interrupted", job.now());
  job.pass(Ms(1900));
  EXPECT_FALSE(job.end());
  job.pass(Ms(100));
  ASSERT_TRUE(job.end());
  EXPECT_FALSE(job.end()->succeeded);
  EXPECT_EQ(job.end()->reason, "interrupted; did not end in time: worker 0 (pid 1001 on alpha)");
}

TEST(CoordinatorState, NoticesReachPeopleAndNotWorkers) {
  SimulatedJob job({.workers = 2});
  const auto zero = job.join();
  const auto one = job.join();
  const auto observer = job.join(control::OBSERVER);
  control::Notice notice;
  notice.set_text("epoch 3: 91.2 %");
  job.say(zero, notice);
  EXPECT_EQ(job.last<control::Notice>(observer).text(), "epoch 3: 91.2 %");
  EXPECT_THAT(job.take<control::Notice>(one), IsEmpty());
}

TEST(CoordinatorState, StatusTellsEveryMembersState) {
  SimulatedJob job({.workers = 2});
  const auto zero = job.join();
  job.close(job.join());
  const auto observer = job.join(control::OBSERVER);
  job.beating = {zero, observer};
  job.steps[zero] = 17;
  job.pass(Ms(1000));
  job.say(observer, control::StatusRequest());
  const auto status = job.last<control::StatusReply>(observer);
  EXPECT_EQ(status.view(), 2U);
  EXPECT_EQ(status.term(), 5U);
  EXPECT_EQ(status.phase(), "running");
  EXPECT_NEAR(status.elapsed_seconds(), 1.0, 0.01);
  ASSERT_EQ(status.members_size(), 2);  // observers are not shown
  EXPECT_EQ(status.members(0).state(), control::MemberStatus::ALIVE);
  EXPECT_EQ(status.members(0).progress().step(), 17);
  EXPECT_EQ(status.members(1).state(), control::MemberStatus::LOST);
}

TEST(CoordinatorState, ForgetsObserversThatWent) {
  SimulatedJob job({.workers = 1});
  const auto worker = job.join();
  job.beating = {worker};
  for (int i = 0; i < 10; ++i) {
    job.leave(job.join(control::OBSERVER));
    job.close(job.join(control::OBSERVER));
    job.pass(Ms(600));
  }
  EXPECT_THAT(job.take<control::Lost>(worker), IsEmpty());
  EXPECT_EQ(job.state().status(job.now()).members_size(), 1);
}

TEST(CoordinatorLeases, NumbersAreOfTheTerm) {
  SimulatedJob job({.workers = 1, .samples_per_epoch = 10, .epochs = 1});
  const auto worker = job.join();
  job.say(worker, lease_request(4));
  const auto grant = job.last<control::LeaseGrant>(worker);
  EXPECT_EQ(grant.lease(), (std::uint64_t{5} << 32) + 1);
  EXPECT_EQ(grant.first(), 0);
  EXPECT_EQ(grant.count(), 4);
}

TEST(CoordinatorLeases, OfTheDeadGoToWhoWaits) {
  SimulatedJob job({.workers = 2, .samples_per_epoch = 10, .epochs = 1});
  const auto zero = job.join();
  const auto one = job.join();
  job.say(zero, lease_request(10));
  const auto grant = job.last<control::LeaseGrant>(zero);
  job.say(one, lease_request(10));
  EXPECT_THAT(job.take<control::LeaseGrant>(one), IsEmpty());
  job.beating = {one};
  job.close(zero);
  job.pass(Ms(600));
  const auto again = job.last<control::LeaseGrant>(one);
  EXPECT_EQ(again.lease(), grant.lease());
  job.say(one, lease_request(10));
  job.say(one, lease_done(again.lease()));
  EXPECT_TRUE(job.last<control::LeaseGrant>(one).finished());
}

TEST(CoordinatorLeases, WaitForTheFenceOfEveryServer) {
  SimulatedJob job({.workers = 2, .servers = 2, .samples_per_epoch = 10, .epochs = 1});
  const auto zero = job.join();
  const auto one = job.join();
  const auto server = job.join(control::SERVER);
  const auto other_server = job.join(control::SERVER);
  job.say(zero, lease_request(10));
  const auto lease = job.last<control::LeaseGrant>(zero).lease();
  job.say(one, lease_request(10));
  job.beating = {one, server, other_server};
  job.close(zero);
  job.pass(Ms(600));
  EXPECT_THAT(job.take<control::LeaseGrant>(one), IsEmpty());
  control::FenceConfirmed confirmed;
  confirmed.set_incarnation(job.last<control::Lost>(server).member().incarnation());
  auto* progress = confirmed.add_leases();
  progress->set_lease(lease);
  progress->set_next_push(3);
  job.say(server, confirmed);
  job.say(server, confirmed);  // once counts
  EXPECT_THAT(job.take<control::LeaseGrant>(one), IsEmpty());
  job.close(other_server);  // the dead need not confirm
  job.pass(Ms(600));
  const auto grant = job.last<control::LeaseGrant>(one);
  EXPECT_EQ(grant.lease(), lease);
  EXPECT_EQ(grant.next_push(), 3U);
}

TEST(CoordinatorLeases, ACopyOfSeveralWorkersIsGivenUpWholeAndItsLeaseWaitsForAllOfThem) {
  SimulatedJob job({.workers = 4, .servers = 1, .parts = 2, .samples_per_epoch = 10, .epochs = 1});
  const auto zero = job.join();
  const auto one = job.join();
  const auto two = job.join();
  const auto three = job.join();
  const auto server = job.join(control::SERVER);
  job.say(zero, lease_request(10));
  const auto lease = job.last<control::LeaseGrant>(zero).lease();
  job.say(two, lease_request(10));
  job.beating = {zero, two, three, server};
  job.close(one);
  job.pass(Ms(600));
  EXPECT_THAT(job.last<control::Fenced>(zero).reason(), HasSubstr("another part of its copy of the network"));
  EXPECT_TRUE(job.is_closed(zero));
  const auto lost = job.take<control::Lost>(server);
  ASSERT_THAT(lost, SizeIs(2));
  EXPECT_THAT(job.take<control::Lost>(two), SizeIs(2));
  for (const int which : {1, 0}) {  // the lease is in the name of the first, who is lost second
    EXPECT_THAT(job.take<control::LeaseGrant>(two), IsEmpty());
    control::FenceConfirmed confirmed;
    confirmed.set_incarnation(lost[static_cast<std::size_t>(which)].member().incarnation());
    auto* progress = confirmed.add_leases();
    progress->set_lease(lease);
    progress->set_next_push(static_cast<std::uint64_t>(3 + which));
    job.say(server, confirmed);
  }
  EXPECT_EQ(job.last<control::LeaseGrant>(two).next_push(), 3U);
  EXPECT_FALSE(job.is_closed(three));
}

TEST(CoordinatorLeases, AWorkerThatIsDoneLeavesItsCopysLeaseAlone) {
  SimulatedJob job({.workers = 2, .servers = 1, .parts = 2, .samples_per_epoch = 10, .epochs = 1});
  const auto zero = job.join();
  const auto one = job.join();
  job.join(control::SERVER);
  job.say(zero, lease_request(10));
  const auto lease = job.last<control::LeaseGrant>(zero).lease();
  control::Leave leave;
  leave.set_succeeded(true);
  job.say(one, leave);
  job.say(zero, lease_done(lease));
  EXPECT_THAT(job.take<control::Fenced>(zero), IsEmpty());
}

TEST(CoordinatorLeases, ASampleMayWaitForACertainWorker) {
  SimulatedJob job({.workers = 2, .rendezvous = {{.share = 0.55, .worker = 1}}, .samples_per_epoch = 5, .epochs = 2});
  const auto zero = job.join();
  const auto one = job.join();
  job.say(zero, lease_request(4));
  EXPECT_EQ(job.last<control::LeaseGrant>(zero).count(), 4);
  job.say(zero, lease_request(4));
  EXPECT_EQ(job.last<control::LeaseGrant>(zero).count(), 1);
  job.take<control::LeaseGrant>(zero);
  job.say(zero, lease_request(2));  // the first of the second epoch, of which the first is half of all
  EXPECT_THAT(job.take<control::LeaseGrant>(zero), IsEmpty());
  job.say(one, lease_request(2));
  EXPECT_EQ(job.last<control::LeaseGrant>(one).first(), 0);
  EXPECT_EQ(job.last<control::LeaseGrant>(zero).first(), 2);
}

TEST(CoordinatorLeases, OfTwoWhoAreAwaitedAtOneSampleTheFirstGetsIt) {
  SimulatedJob job({.workers = 3,
                    .rendezvous = {{.share = 0.5, .worker = 2}, {.share = 0.4, .worker = 1}},
                    .samples_per_epoch = 10,
                    .epochs = 1});
  const auto zero = job.join();
  const auto one = job.join();
  const auto two = job.join();
  for (const auto& worker : {zero, one, two}) {
    job.say(worker, lease_request(10));
  }
  EXPECT_THAT(job.take<control::LeaseGrant>(one), IsEmpty());
  EXPECT_EQ(job.last<control::LeaseGrant>(two).count(), 10);
}

TEST(CoordinatorLeases, WhatCameBackWaitsForNobody) {
  SimulatedJob job({.workers = 3, .rendezvous = {{.share = 0.5, .worker = 2}}, .samples_per_epoch = 10, .epochs = 1});
  const auto zero = job.join();
  const auto one = job.join();
  const auto two = job.join();
  job.say(zero, lease_request(5));
  job.say(one, lease_request(5));
  EXPECT_THAT(job.take<control::LeaseGrant>(one), IsEmpty());
  job.beating = {one, two};
  job.close(zero);
  job.pass(Ms(600));
  EXPECT_EQ(job.last<control::LeaseGrant>(one).first(), 0);
}

TEST(CoordinatorLeases, ASampleOfTheDeadWaitsForNobody) {
  SimulatedJob job({.workers = 2, .rendezvous = {{.share = 0, .worker = 1}}, .samples_per_epoch = 5, .epochs = 1});
  const auto zero = job.join();
  const auto one = job.join();
  job.say(zero, lease_request(4));
  EXPECT_THAT(job.take<control::LeaseGrant>(zero), IsEmpty());
  job.beating = {zero};
  job.close(one);
  job.pass(Ms(600));
  EXPECT_EQ(job.last<control::LeaseGrant>(zero).count(), 4);
}

TEST(CoordinatorLeases, DoneByAnotherIsFenced) {
  SimulatedJob job({.workers = 2, .samples_per_epoch = 10, .epochs = 1});
  const auto zero = job.join();
  const auto one = job.join();
  job.say(zero, lease_request(10));
  const auto lease = job.last<control::LeaseGrant>(zero).lease();
  job.say(one, lease_done(lease));
  EXPECT_THAT(job.last<control::Fenced>(one).reason(), HasSubstr("is not with worker 1"));
  EXPECT_FALSE(job.is_closed(one));
}

TEST(Outbox, KeepsWhatIsNotAcknowledged) {
  Outbox outbox;
  for (int i = 0; i < 3; ++i) {
    outbox.push(std::make_shared<const ControlMessage>(control::View()));
  }
  EXPECT_TRUE(outbox.acknowledge(2));
  EXPECT_THAT(outbox.waiting(), SizeIs(1));
  EXPECT_FALSE(outbox.acknowledge(1));
  EXPECT_FALSE(outbox.acknowledge(4));
  EXPECT_TRUE(outbox.acknowledge(3));
  EXPECT_THAT(outbox.waiting(), IsEmpty());
}

control::Order leave_order(int rank) {
  control::Order order;
  order.set_what(control::Order::LEAVE);
  order.set_reason("somebody asked for it");
  order.set_rank(rank);
  return order;
}

TEST(CoordinatorState, AWorkerIsAskedToLeaveAndTheOthersAreNot) {
  SimulatedJob job({.workers = 2, .servers = 1, .workers_may_leave = true});
  const auto a = job.join();
  const auto b = job.join();
  job.join(control::SERVER);
  const auto observer = job.join(control::OBSERVER);
  job.say(observer, leave_order(1));
  const auto answer = job.last<control::OrderAnswer>(observer);
  EXPECT_TRUE(answer.accepted());
  EXPECT_EQ(answer.text(), "worker 1 (pid 1002 on alpha) was asked to leave");
  EXPECT_EQ(job.last<control::Order>(b).what(), control::Order::LEAVE);
  EXPECT_THAT(job.take<control::Order>(a), testing::IsEmpty());
  job.leave(b, true, "interrupted");
  job.say(observer, leave_order(0));
  EXPECT_EQ(job.last<control::OrderAnswer>(observer).text(),
            "worker 0 (pid 1001 on alpha) is the last that trains: stop the job instead");
}

TEST(CoordinatorState, WhoIsNeededIsNotAskedToLeave) {
  SimulatedJob job({.workers = 2, .servers = 1});
  job.join();
  const auto observer = job.join(control::OBSERVER);
  const auto refusal = [&](int rank) {
    job.say(observer, leave_order(rank));
    const auto answer = job.last<control::OrderAnswer>(observer);
    EXPECT_FALSE(answer.accepted());
    return answer.text();
  };
  EXPECT_THAT(refusal(0), testing::HasSubstr("the job is waiting for 2 of 3 processes"));
  job.join();
  job.join(control::SERVER);
  EXPECT_THAT(refusal(0), testing::HasSubstr("cannot do without each other"));
  EXPECT_THAT(refusal(2), testing::HasSubstr("server 2 (pid 1004 on alpha) holds parameters"));
  EXPECT_THAT(refusal(7), testing::HasSubstr("the job has no worker or server 7"));
}

TEST(CoordinatorState, OfACopyOfTheNetworkAllLeave) {
  SimulatedJob job({.workers = 4, .servers = 1, .parts = 2, .workers_may_leave = true});
  std::vector<ConnectionId> workers;
  for (int i = 0; i < 4; ++i) {
    workers.push_back(job.join());
  }
  job.join(control::SERVER);
  const auto observer = job.join(control::OBSERVER);
  job.say(observer, leave_order(2));
  EXPECT_TRUE(job.last<control::OrderAnswer>(observer).accepted());
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(job.take<control::Order>(workers[i]).size(), i < 2 ? 0U : 1U);
  }
}

}  // namespace
}  // namespace distbelief
