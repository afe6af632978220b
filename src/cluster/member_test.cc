#include "cluster/member.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/test_job.h"
#include "cluster/test_relay.h"

namespace distbelief {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using Ms = std::chrono::milliseconds;

/// Death by silence and by a close in a time that a test can wait for.
JobRules quick(int workers) {
  return {.workers = workers, .heartbeat = Ms(20), .silence_limit = Ms(5000), .reconnect_limit = Ms(100)};
}

TEST(Member, LearnsItsPlaceAndTheOthers) {
  const TestJob job(quick(2));
  const auto zero = job.join();
  auto request = job.request();
  request.facts = "tcp:alpha:9";
  const auto one = job.join(request);
  EXPECT_EQ(zero->self().role, Role::worker);
  EXPECT_EQ(zero->self().rank, Rank{0});
  EXPECT_EQ(one->self().rank, Rank{1});
  EXPECT_EQ(zero->term(), 1U);
  for (const auto* member : {zero.get(), one.get()}) {
    const auto view = member->wait_for_view(1, soon());
    ASSERT_TRUE(view);
    EXPECT_TRUE(view->complete);
    ASSERT_THAT(view->members, SizeIs(2));
    EXPECT_EQ(view->members[1].facts, "tcp:alpha:9");
    EXPECT_EQ(view->members[1].incarnation, one->self().incarnation);
  }
}

TEST(Member, LeavesWithAWordThatIsHeard) {
  const TestJob job(quick(2));
  EventRecorder events;
  const auto zero = job.join(Role::worker, &events);
  auto one = job.join();
  ASSERT_TRUE(zero->wait_for_view(1, soon()));
  EXPECT_TRUE(one->leave(true, "done", soon()));
  one.reset();
  EXPECT_THAT(zero->wait_for_view(2, soon())->members, SizeIs(1));
  EXPECT_THAT(events.all<MemberLost>(), IsEmpty());
  EXPECT_TRUE(zero->leave(true, "done", soon()));
  const auto result = job.coordinator->wait(soon());
  ASSERT_TRUE(result);
  EXPECT_TRUE(result->succeeded) << result->reason;
}

TEST(Member, IsToldWhyItIsRefused) {
  const TestJob job(quick(1));
  auto request = job.request();
  request.token = "guessed";
  const auto joined = Member::join(job.coordinator->address(), request, soon());
  EXPECT_EQ(joined.member, nullptr);
  EXPECT_EQ(joined.reason, "its token is not the job's");
  EXPECT_TRUE(joined.refused);
}

TEST(Member, IsToldThatNobodyIsThere) {
  Address nowhere;
  {
    const TestJob job(quick(1));
    nowhere = job.coordinator->address();
  }
  const auto joined = Member::join(nowhere, JoinRequest(), Clock::now() + Ms(50));
  EXPECT_EQ(joined.member, nullptr);
  EXPECT_THAT(joined.reason, HasSubstr("no coordinator was reached: " + nowhere.text()));
  EXPECT_FALSE(joined.refused);
}

TEST(Member, LearnsWhoDiedAndWhy) {
  auto rules = quick(2);
  rules.cut_reconnect_limit = rules.reconnect_limit;  // a heartbeat that was late on a busy machine passes for a cut
  const TestJob job(rules);
  EventRecorder events;
  const auto zero = job.join(Role::worker, &events);
  auto one = job.join();
  ASSERT_TRUE(zero->wait_for_view(1, soon()));
  one.reset();  // no word: a crash
  const auto lost = events.wait_for<MemberLost>();
  EXPECT_EQ(lost.member.rank, Rank{1});
  EXPECT_THAT(lost.reason, HasSubstr("did not come back within 100 ms"));
  const auto view = zero->wait_for_view(2, soon());
  ASSERT_TRUE(view);
  EXPECT_EQ(view->find(Rank{1}), nullptr);
}

TEST(Member, LearnsOfAKillAtOnceWhenTheLauncherSawIt) {
  auto rules = quick(2);
  rules.has_launcher = true;
  rules.reconnect_limit = std::chrono::hours(1);
  const TestJob job(rules);
  EventRecorder events;
  const auto launcher = job.join(Role::launcher);
  const auto zero = job.join(Role::worker, &events);
  auto request = job.request();
  request.launch = 7;
  auto one = job.join(request);
  one.reset();
  launcher->report_exit({.launch = 7, .name = "worker 1", .signal = 9});
  EXPECT_EQ(events.wait_for<MemberLost>().reason, "was killed by signal 9 (SIGKILL)");
}

TEST(Member, GoesOnOverANewConnectionAsIfNothingHadHappened) {
  auto rules = quick(2);
  rules.reconnect_limit = std::chrono::minutes(10);
  const TestJob job(rules);
  TestRelay relay(job.coordinator->address());
  EventRecorder events;
  EventRecorder observed;
  const auto observer = job.join(Role::observer, &observed);
  const auto zero = job.join();
  const auto one = job.join(job.request(Role::worker, &events), relay.address());
  ASSERT_TRUE(one->wait_for_view(1, soon()));
  constexpr int kNotices = 200;
  for (int i = 0; i < kNotices; ++i) {
    one->notice(std::to_string(i));
    if (i % 40 == 20) {
      relay.cut();  // at any moment: before, while and after messages are on the way
    }
  }
  observed.wait_for<Notice>([](const Notice& notice) { return notice.text == std::to_string(kNotices - 1); });
  const auto notices = observed.all<Notice>();
  ASSERT_THAT(notices, SizeIs(kNotices));
  for (int i = 0; i < kNotices; ++i) {
    EXPECT_EQ(notices[static_cast<std::size_t>(i)].text, std::to_string(i));
  }
  EXPECT_TRUE(one->leave(true, "done", soon()));
  EXPECT_THAT(events.all<CoordinatorLost>(), IsEmpty());
}

TEST(Member, WhatTheCoordinatorSaysSurvivesCutsToo) {
  auto rules = quick(1);
  rules.reconnect_limit = std::chrono::minutes(10);
  rules.samples_per_epoch = 100;
  rules.epochs = 1;
  const TestJob job(rules);
  TestRelay relay(job.coordinator->address());
  const auto worker = job.join(job.request(), relay.address());
  std::int64_t covered = 0;
  for (int i = 0;; ++i) {
    const auto answer = worker->request_lease(3, soon());
    if (std::holds_alternative<Member::LeasesFinished>(answer)) {
      break;
    }
    ASSERT_TRUE(std::holds_alternative<Lease>(answer));
    const auto lease = std::get<Lease>(answer);
    EXPECT_EQ(lease.first, covered);
    covered += lease.count;
    worker->complete_lease(lease.id);
    if (i % 10 == 5) {
      relay.cut();
    }
  }
  EXPECT_EQ(covered, 100);
  EXPECT_GT(relay.accepted(), 1);
}

TEST(Member, ThatIsCutOffForTooLongIsFenced) {
  auto rules = quick(2);
  rules.silence_limit = Ms(200);
  const TestJob job(rules);
  TestRelay relay(job.coordinator->address());
  EventRecorder zero_events;
  EventRecorder events;
  const auto zero = job.join(Role::worker, &zero_events);
  auto request = job.request(Role::worker, &events);
  request.silence_limit = std::chrono::minutes(1);
  request.coordinator_limit = std::chrono::minutes(2);
  const auto one = job.join(request, relay.address());
  ASSERT_TRUE(one->wait_for_view(1, soon()));
  relay.block(true);
  EXPECT_THAT(zero_events.wait_for<MemberLost>().reason, HasSubstr("was silent for 0."));
  relay.block(false);
  const auto lost = events.wait_for<CoordinatorLost>();
  EXPECT_TRUE(lost.fenced);
  EXPECT_THAT(lost.reason, HasSubstr("the coordinator gave this process up: was silent"));
  EXPECT_FALSE(one->wait_for_view(9, soon()));  // and does not wait for it
  EXPECT_FALSE(one->leave(true, "done", soon()));
}

TEST(Member, ACutThatHealsInTimeIsForgotten) {
  auto rules = quick(2);
  rules.silence_limit = std::chrono::minutes(5);
  const TestJob job(rules);
  EventRecorder observed;
  EventRecorder zero_events;
  const auto observer = job.join(Role::observer, &observed);
  const auto zero = job.join(Role::worker, &zero_events);
  auto request = job.request();
  request.silence_limit = Ms(10);  // far shorter than the cut: whoever is cut off must not close
  const auto one = job.join(request);
  ASSERT_TRUE(one->wait_for_view(1, soon()));
  one->cut_off(Clock::now() + Ms(300));
  one->notice("said into the cut");
  EXPECT_FALSE(one->flush(Clock::now() + Ms(20)));
  EXPECT_TRUE(one->flush(soon()));
  EXPECT_EQ(observed.wait_for<Notice>().text, "said into the cut");
  EXPECT_THAT(zero_events.all<MemberLost>(), IsEmpty());
  EXPECT_TRUE(one->leave(true, "done", soon()));
}

TEST(Member, ACutThatIsTooLongIsDeathBySilence) {
  auto rules = quick(2);
  rules.silence_limit = Ms(200);
  const TestJob job(rules);
  EventRecorder zero_events;
  EventRecorder events;
  const auto zero = job.join(Role::worker, &zero_events);
  const auto one = job.join(job.request(Role::worker, &events));
  ASSERT_TRUE(one->wait_for_view(1, soon()));
  one->cut_off(Clock::now() + Ms(1500));
  EXPECT_THAT(zero_events.wait_for<MemberLost>().reason, HasSubstr("was silent for 0."));
  EXPECT_TRUE(events.wait_for<CoordinatorLost>().fenced);
}

TEST(Member, WhoIsCutOffForGoodTakesTheCoordinatorForLost) {
  const TestJob job(quick(1));
  EventRecorder events;
  auto request = job.request(Role::worker, &events);
  request.coordinator_limit = Ms(200);
  request.return_limit = Ms(200);
  const auto worker = job.join(request);
  ASSERT_TRUE(worker->wait_for_view(1, soon()));
  worker->cut_off(Clock::time_point::max());
  EXPECT_THAT(events.wait_for<CoordinatorLost>().reason, HasSubstr("nothing was heard of the coordinator"));
}

TEST(Member, NoticesASilentCoordinatorAndTriesAgain) {
  auto rules = quick(1);
  rules.silence_limit = std::chrono::minutes(10);
  rules.reconnect_limit = std::chrono::minutes(10);
  const TestJob job(rules);
  TestRelay relay(job.coordinator->address());
  EventRecorder events;
  auto request = job.request(Role::worker, &events);
  request.silence_limit = Ms(100);
  request.coordinator_limit = std::chrono::minutes(10);
  const auto worker = job.join(request, relay.address());
  ASSERT_TRUE(worker->wait_for_view(1, soon()));
  relay.block(true);
  worker->notice("said into the void");
  std::this_thread::sleep_for(Ms(300));  // the silence itself; nothing depends on its length
  relay.block(false);
  EXPECT_TRUE(worker->leave(true, "done", soon()));
}

TEST(Member, GoesOnWithACoordinatorThatTookThePlaceOfAnother) {
  TestJob job(quick(2));
  EventRecorder events;
  EventRecorder launcher_events;
  const auto launcher = job.join(Role::launcher, &launcher_events);
  const auto one = job.join(Role::worker, &events);
  const auto two = job.join();
  ASSERT_TRUE(two->wait_for_view(1, soon()));
  const Address address = job.coordinator->address();
  one->notice("before");
  launcher_events.wait_for<Notice>();
  for (std::uint64_t term = 2; term < 5; ++term) {
    job.kill_coordinator();
    one->notice(fmt::format("while there was none in term {}", term));
    job.start_coordinator_again();
    EXPECT_EQ(job.coordinator->address(), address);
    EXPECT_TRUE(one->flush(soon()));
    EXPECT_TRUE(two->flush(soon()));
    EXPECT_EQ(one->term(), term);
    launcher_events.wait_for<Notice>([&](const Notice& notice) { return notice.text.ends_with(std::to_string(term)); });
  }
  EXPECT_THAT(launcher_events.all<Notice>(), SizeIs(4));  // what was said again was told once
  EXPECT_EQ(one->view().number, 1U);
  EXPECT_TRUE(one->leave(true, "done", soon()));
  EXPECT_TRUE(two->leave(true, "done", soon()));
  EXPECT_TRUE(launcher_events.wait_for<JobEnded>().succeeded);
  EXPECT_THAT(events.all<CoordinatorLost>(), IsEmpty());
}

TEST(Member, LeavesWhenTheCoordinatorIsBack) {
  TestJob job(quick(1));
  const auto worker = job.join();
  ASSERT_TRUE(worker->wait_for_view(1, soon()));
  job.kill_coordinator();
  std::jthread returns([&] {
    std::this_thread::sleep_for(Ms(100));  // only so that leaving mostly begins first
    job.start_coordinator_again();
  });
  EXPECT_TRUE(worker->leave(true, "done", soon()));
  returns.join();
  const auto result = job.coordinator->wait(soon());
  ASSERT_TRUE(result.has_value());
  EXPECT_TRUE(result->succeeded);
}

TEST(Member, LeasesAreWithWhomTheyWereWhenTheCoordinatorIsBack) {
  JobRules rules = quick(1);
  rules.servers = 1;
  TestJob job(rules);
  EventRecorder server_events;
  const auto worker = job.join();
  const auto server = job.join(Role::server, &server_events);
  ASSERT_TRUE(worker->wait_for_view(1, soon()));
  server->plan_leases({.samples_per_epoch = 30, .epochs = 1});
  const auto first = std::get<Lease>(worker->request_lease(10, soon()));
  const auto second = std::get<Lease>(worker->request_lease(10, soon()));
  worker->complete_lease(first.id);
  ASSERT_TRUE(worker->flush(soon()));
  job.kill_coordinator();
  std::jthread asks([&] { EXPECT_EQ(std::get<Lease>(worker->request_lease(10, soon())).first, 20); });
  job.start_coordinator_again();
  const auto question = server_events.wait_for<LeaseQuestion>();
  EXPECT_FALSE(question.for_plan);
  server->report_leases({LeaseReport{.low_water = first.id}}, question.number);
  const auto for_plan =
      server_events.wait_for<LeaseQuestion>([](const LeaseQuestion& asked) { return asked.for_plan; });
  ASSERT_THAT(for_plan.held, SizeIs(1));
  EXPECT_EQ(for_plan.held[0].id, second.id);
  server->plan_leases({.samples_per_epoch = 30, .epochs = 1, .first_id = for_plan.first_lease, .first_position = 20},
                      for_plan.number);
  asks.join();
  worker->complete_lease(second.id);
  EXPECT_TRUE(worker->flush(soon()));
}

TEST(Member, EndsWhenTheCoordinatorDoesNotComeBack) {
  std::optional<TestJob> job(std::in_place, quick(1));
  EventRecorder events;
  auto request = job->request(Role::worker, &events);
  request.coordinator_limit = Ms(200);
  request.return_limit = Ms(200);
  const auto worker = job->join(request);
  ASSERT_TRUE(worker->wait_for_view(1, soon()));
  job.reset();
  const auto lost = events.wait_for<CoordinatorLost>();
  EXPECT_FALSE(lost.fenced);
  EXPECT_THAT(lost.reason, HasSubstr("the coordinator is gone"));
  EXPECT_FALSE(worker->wait_for_view(2, soon()));
}

TEST(Member, IsOrderedToStopAndToldThatItIsOver) {
  const TestJob job(quick(1));
  EventRecorder events;
  EventRecorder observed;
  const auto observer = job.join(Role::observer, &observed);
  const auto worker = job.join(Role::worker, &events);
  observer->order({Order::What::checkpoint, "just in case"});
  EXPECT_EQ(events.wait_for<Order>().what, Order::What::checkpoint);
  observer->order({Order::What::stop, "enough"});
  const auto stop = events.wait_for<Order>([](const Order& order) { return order.what == Order::What::stop; });
  EXPECT_EQ(stop.reason, "enough");
  EXPECT_TRUE(worker->leave(true, "stopped", soon()));
  const auto ended = observed.wait_for<JobEnded>();
  EXPECT_TRUE(ended.succeeded);
  EXPECT_EQ(ended.reason, "enough");
  EXPECT_THAT(events.all<CoordinatorLost>(), IsEmpty());
}

TEST(Member, ShowsItsProgressInTheStatus) {
  const TestJob job(quick(1));
  auto request = job.request();
  request.progress = [] {
    return Progress{.step = 17, .epoch = 2, .samples_per_second = 99, .loss = 0.5, .operation = "loading"};
  };
  const auto worker = job.join(request);
  const auto observer = job.join(Role::observer);
  for (;;) {
    const auto status = observer->request_status(soon());
    ASSERT_TRUE(status);
    ASSERT_THAT(status->members, SizeIs(1));
    if (status->members[0].progress.step == 17) {
      EXPECT_EQ(status->members[0].progress.operation, "loading");
      EXPECT_EQ(status->phase, "running");
      break;
    }
  }
}

TEST(Member, ShareAnEpochAlsoWhenOneDies) {
  auto rules = quick(3);
  rules.samples_per_epoch = 50;
  rules.epochs = 2;
  const TestJob job(rules);
  std::vector<std::unique_ptr<Member>> workers;
  for (int i = 0; i < 3; ++i) {
    workers.push_back(job.join());
  }
  std::vector<int> done(100);
  const auto first = workers[0]->request_lease(7, soon());
  ASSERT_TRUE(std::holds_alternative<Lease>(first));
  workers[0].reset();  // with a lease in its hands
  std::mutex mutex;
  {
    std::vector<std::jthread> threads;
    for (int i = 1; i < 3; ++i) {
      threads.emplace_back([&, i] {
        for (;;) {
          const auto answer = workers[static_cast<std::size_t>(i)]->request_lease(5, soon());
          const auto* lease = std::get_if<Lease>(&answer);
          if (lease == nullptr) {
            EXPECT_TRUE(std::holds_alternative<Member::LeasesFinished>(answer));
            return;
          }
          const std::scoped_lock lock(mutex);
          for (std::int64_t s = 0; s < lease->count; ++s) {
            ++done[static_cast<std::size_t>(lease->epoch * 50 + lease->first + s)];
          }
          workers[static_cast<std::size_t>(i)]->complete_lease(lease->id);
        }
      });
    }
  }
  EXPECT_EQ(done, std::vector<int>(100, 1));
}

}  // namespace
}  // namespace distbelief
