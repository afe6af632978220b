#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/simulated_job.h"

namespace distbelief {
namespace {

using testing::ElementsAre;
using What = ServerHistory::What;
using Ms = std::chrono::milliseconds;

/// A worker, rank 0, and two servers.
struct ServedJob {
  SimulatedJob job = SimulatedJob{{.workers = 1, .servers = 2}};
  ConnectionId worker = job.join();
  ConnectionId first = job.join(control::SERVER);
  ConnectionId second = job.join(control::SERVER);

  std::vector<ServerHistory::Event> heard(ConnectionId connection) {
    return from_wire(job.last<control::ServerHistory>(connection)).events;
  }
  void lose(ConnectionId connection) {
    job.beating = {worker, first, second};
    job.close(connection);
    job.pass(Ms(600));
  }
};

TEST(CoordinatorServers, AllAreToldOfThemBeforeTheyHearOfTheFirstView) {
  ServedJob served;
  EXPECT_THAT(served.heard(served.worker), ElementsAre(ServerHistory::Event{What::began, Rank{1}, "alpha"},
                                                       ServerHistory::Event{What::began, Rank{2}, "alpha"}));
}

TEST(CoordinatorServers, WhoComesLaterHearsWhatBecameOfThem) {
  ServedJob served;
  served.lose(served.first);
  const auto late = served.job.join();
  const auto expected =
      ElementsAre(ServerHistory::Event{What::began, Rank{1}, "alpha"},
                  ServerHistory::Event{What::began, Rank{2}, "alpha"}, ServerHistory::Event{What::lost, Rank{1}, ""});
  EXPECT_THAT(served.heard(late), expected);
  EXPECT_THAT(served.heard(served.second), expected);
}

TEST(CoordinatorServers, ACoordinatorThatComesBackKnowsThem) {
  ServedJob served;
  served.lose(served.first);
  const auto welcome = served.job.last<control::Welcome>(served.worker);
  SimulatedJob again(SimulatedJob::Killed{served.job});
  const auto back = again.join(SimulatedJob::back(welcome, 0));
  const auto history = from_wire(again.last<control::ServerHistory>(back)).events;
  ASSERT_EQ(history.size(), 3U);
  EXPECT_EQ(history.back(), (ServerHistory::Event{What::lost, Rank{1}, ""}));
}

/// Servers that may change. The first one, rank 1, leads.
struct ChangingJob : ServedJob {
  ChangingJob() : ServedJob{SimulatedJob{{.workers = 1, .servers = 2, .servers_may_change = true}}} {
    control::LeasePlan plan;
    plan.set_samples_per_epoch(100);
    plan.set_epochs(1);
    plan.set_first_lease(1);
    job.say(first, plan);
  }
  ConnectionId observer = job.join(control::OBSERVER);

  void say(ConnectionId server, control::ServerHistory::Event::What what, int shelf, int primary, int backup,
           std::uint64_t changes = 0) {
    control::ServerNews news;
    news.set_what(what);
    news.set_shelf(shelf);
    news.set_primary(primary);
    news.set_backup(backup);
    news.set_changes(changes);
    job.say(server, news);
  }
  std::size_t events() { return static_cast<std::size_t>(job.saved().servers().events_size()); }
  control::OrderAnswer order(control::Order::What what, int number) {
    control::Order order;
    order.set_what(what);
    order.set_rank(number);
    order.set_servers(number);
    job.say(observer, order);
    return job.last<control::OrderAnswer>(observer);
  }
};
using WireEvent = control::ServerHistory::Event;

TEST(CoordinatorServers, ANewcomerCountsWhenItSaysThatItIsReady) {
  ChangingJob served;
  const auto late = served.job.join(control::SERVER);
  EXPECT_EQ(served.events(), 2U);
  served.say(served.second, WireEvent::MOVED, 0, 1, 3);
  EXPECT_EQ(served.events(), 2U) << "it holds nothing yet";
  served.say(late, WireEvent::JOINED, 0, 3, -1);
  served.say(late, WireEvent::JOINED, 0, 3, -1, 1);
  ASSERT_EQ(served.events(), 3U);
  EXPECT_EQ(served.heard(served.second).back(), (ServerHistory::Event{What::joined, Rank{3}, "alpha"}));
  served.say(served.first, WireEvent::MOVED, 4, 1, 3, 1);
  EXPECT_EQ(served.heard(late).back(), (ServerHistory::Event{What::moved, Rank{1}, "", 4, Rank{3}}));
}

TEST(CoordinatorServers, ANewcomerThatIsLostBeforeItWasReadyIsNoEvent) {
  ChangingJob served;
  served.lose(served.job.join(control::SERVER));
  EXPECT_EQ(served.events(), 2U);
}

TEST(CoordinatorServers, WhatMovedIsToldOnceAndNotWhenSomebodyWasLostOrLeavesOfWhomTheSpeakerHasNotHeard) {
  ChangingJob served;
  served.say(served.first, WireEvent::MOVED, 1, 1, 2);
  served.say(served.first, WireEvent::MOVED, 1, 1, 2);
  EXPECT_EQ(served.events(), 3U);
  served.lose(served.second);
  served.say(served.first, WireEvent::MOVED, 2, 1, -1);
  EXPECT_EQ(served.events(), 4U);
  served.say(served.first, WireEvent::MOVED, 2, 1, 2, 1);
  EXPECT_EQ(served.events(), 4U) << "who is lost holds nothing";
  served.say(served.first, WireEvent::MOVED, 2, 1, -1, 1);
  EXPECT_EQ(served.events(), 5U);
}

TEST(CoordinatorServers, NothingMovesWhileServersAreAskedHowFarADeadWorkerCame) {
  ChangingJob served;
  const auto second_worker = served.job.join();
  served.job.beating = {served.worker, served.first, served.second};
  served.job.close(second_worker);
  served.job.pass(Ms(600));
  served.say(served.first, WireEvent::MOVED, 1, 1, 2);
  EXPECT_EQ(served.events(), 2U);
  for (const ConnectionId server : {served.first, served.second}) {
    control::FenceConfirmed confirmed;
    confirmed.set_incarnation(served.job.last<control::Lost>(server).member().incarnation());
    served.job.say(server, confirmed);
  }
  served.say(served.first, WireEvent::MOVED, 1, 1, 2);
  EXPECT_EQ(served.events(), 3U);
}

TEST(CoordinatorServers, AnyButTheLastMayLeave) {
  ChangingJob served;
  EXPECT_TRUE(served.order(control::Order::LEAVE, 1).accepted()) << "it leads";
  EXPECT_TRUE(served.order(control::Order::LEAVE, 1).accepted());
  ASSERT_EQ(served.events(), 3U);
  EXPECT_EQ(served.heard(served.first).back(), (ServerHistory::Event{What::leaves, Rank{1}}));
  EXPECT_THAT(served.order(control::Order::LEAVE, 2).text(), testing::HasSubstr("is the last that holds parameters"));
  served.say(served.first, WireEvent::MOVED, 0, 2, 1);
  EXPECT_EQ(served.events(), 3U) << "it has not heard that it is to leave, and may want to go on otherwise then";
  served.say(served.first, WireEvent::MOVED, 0, 2, 1, 1);
  EXPECT_EQ(served.heard(served.second).back(), (ServerHistory::Event{What::moved, Rank{2}, "", 0, Rank{1}}));
}

TEST(CoordinatorServers, WhoWasToLeaveStaysWhenTheOtherIsLost) {
  ChangingJob served;
  EXPECT_TRUE(served.order(control::Order::LEAVE, 1).accepted());
  served.lose(served.second);
  EXPECT_THAT(served.order(control::Order::LEAVE, 1).text(), testing::HasSubstr("is the last that holds parameters"));
}

TEST(CoordinatorServers, WhatIsBeingHandedOverIsHandedOverThoughAllAreToStop) {
  ChangingJob served;
  EXPECT_TRUE(served.order(control::Order::LEAVE, 1).accepted());
  control::Order stop;
  stop.set_what(control::Order::STOP);
  served.job.say(served.observer, stop);
  served.say(served.first, WireEvent::MOVED, 0, 2, 1, 1);
  EXPECT_EQ(served.heard(served.second).back(), (ServerHistory::Event{What::moved, Rank{2}, "", 0, Rank{1}}));
}

TEST(CoordinatorServers, AServerWhoseProcessIsAskedToEndLeavesAndWhenAllAreTheJobStops) {
  for (const bool all : {false, true}) {
    ChangingJob served;
    served.job.beating = {served.worker, served.first, served.second};
    for (const int rank : {1, 2}) {
      control::Order wish;
      wish.set_what(control::Order::LEAVE);
      wish.set_rank(rank);
      if (rank == 1 || all) {
        served.job.say(rank == 1 ? served.first : served.second, wish);
      }
    }
    served.job.pass(Ms(600));
    EXPECT_EQ(served.events(), all ? 2U : 3U);
    EXPECT_EQ(served.job.take<control::Order>(served.worker).size(), all ? 1U : 0U);
  }
}

TEST(CoordinatorServers, ScalingTakesOutWhoCameLast) {
  ChangingJob served;
  EXPECT_EQ(served.order(control::Order::SCALE, 2).text(), "1 worker, 2 servers, as it is");
  EXPECT_THAT(served.order(control::Order::SCALE, 3).text(), testing::HasSubstr("nobody here can start workers"));
  EXPECT_EQ(served.order(control::Order::SCALE, 1).text(), "2 servers → 1: server 2 leaves");
  ServedJob fixed;
  const auto observer = fixed.job.join(control::OBSERVER);
  control::Order order;
  order.set_what(control::Order::SCALE);
  order.set_servers(3);
  fixed.job.say(observer, order);
  EXPECT_EQ(fixed.job.last<control::OrderAnswer>(observer).text(), "the servers of this job stay as they are");
}

/// Three workers with a server inside each; the first leads.
struct InsideJob {
  SimulatedJob job;
  ConnectionId launcher{};  ///< if there is one
  std::vector<ConnectionId> workers;

  explicit InsideJob(const JobRules& rules = {.workers = 3, .workers_serve = true}) : job(rules) {
    if (rules.has_launcher) {
      launcher = job.join(control::LAUNCHER);
      job.beating = {launcher};
    }
    for (int i = 0; i < rules.workers; ++i) {
      workers.push_back(job.join());
    }
    control::LeasePlan plan;
    plan.set_samples_per_epoch(30);
    plan.set_epochs(1);
    plan.set_first_lease(1);
    job.say(workers[0], plan);
    job.beating.insert(workers.begin(), workers.end());
  }
  void lose(int worker) {
    job.close(workers[static_cast<std::size_t>(worker)]);
    job.pass(Ms(600));
  }
  void ask(int worker) {
    control::LeaseRequest request;
    request.set_samples(30);
    job.say(workers[static_cast<std::size_t>(worker)], request);
  }
  void confirm(int worker, std::uint64_t incarnation, std::uint64_t lease, std::uint64_t next_push) {
    control::FenceConfirmed confirmed;
    confirmed.set_incarnation(incarnation);
    auto* progress = confirmed.add_leases();
    progress->set_lease(lease);
    progress->set_next_push(next_push);
    job.say(workers[static_cast<std::size_t>(worker)], confirmed);
  }
};

TEST(CoordinatorServers, WorkersMayHaveThemInside) {
  InsideJob inside;
  inside.lose(1);
  const auto history = from_wire(inside.job.last<control::ServerHistory>(inside.workers[2])).events;
  EXPECT_THAT(history, ElementsAre(ServerHistory::Event{What::began, Rank{0}, "alpha"},
                                   ServerHistory::Event{What::began, Rank{1}, "alpha"},
                                   ServerHistory::Event{What::began, Rank{2}, "alpha"},
                                   ServerHistory::Event{What::lost, Rank{1}, ""}));
}

/// The same of which some may leave, and others come.
struct MovingInsideJob : InsideJob {
  explicit MovingInsideJob(int count = 3)
      : InsideJob({.workers = count,
                   .workers_serve = true,
                   .has_launcher = true,
                   .workers_may_leave = true,
                   .launcher_starts_workers = true,
                   .restarts = 1}) {}
  void say_ready(ConnectionId worker, int rank) {
    control::ServerNews news;
    news.set_what(control::ServerHistory::Event::JOINED);
    news.set_primary(rank);
    job.say(worker, news);
  }
  control::OrderAnswer leave(int rank) {
    control::Order order;
    order.set_what(control::Order::LEAVE);
    order.set_rank(rank);
    job.say(observer, order);
    return job.last<control::OrderAnswer>(observer);
  }
  ServerHistory::Event last_event() { return from_wire(job.last<control::ServerHistory>(workers[0])).events.back(); }

  ConnectionId observer = job.join(control::OBSERVER);
};

TEST(CoordinatorServers, AWorkerWithOneInsideIsToldToLeaveAsAServerAndGoesOnTraining) {
  MovingInsideJob inside;
  EXPECT_TRUE(inside.leave(1).accepted());
  EXPECT_EQ(inside.last_event(), (ServerHistory::Event{What::leaves, Rank{1}, ""}));
  EXPECT_THAT(inside.job.take<control::Order>(inside.workers[1]), testing::IsEmpty());
  inside.ask(1);
  EXPECT_EQ(inside.job.take<control::LeaseGrant>(inside.workers[1]).size(), 1U);
  EXPECT_TRUE(inside.leave(2).accepted());
  EXPECT_THAT(inside.leave(0).text(), testing::HasSubstr("is the last that trains"));
}

TEST(CoordinatorServers, AWorkerThatCameServesWhenItIsReadyAndLeavesOnlyThen) {
  MovingInsideJob inside;
  const auto late = inside.job.join();
  EXPECT_THAT(inside.leave(3).text(), testing::HasSubstr("is not ready yet"));
  inside.say_ready(late, 3);
  EXPECT_EQ(inside.last_event(), (ServerHistory::Event{What::joined, Rank{3}, "alpha"}));
  EXPECT_TRUE(inside.leave(3).accepted());
  EXPECT_EQ(inside.last_event(), (ServerHistory::Event{What::leaves, Rank{3}, ""}));
}

TEST(CoordinatorServers, ADeadWorkerIsReplacedUnlessItTookAllParametersAlong) {
  for (const int count : {1, 2}) {
    MovingInsideJob inside(count);
    inside.lose(0);
    const auto orders = inside.job.take<control::Order>(inside.launcher);
    const auto starts = [](const control::Order& order) { return order.what() == control::Order::START; };
    EXPECT_EQ(std::ranges::count_if(orders, starts), count - 1);
  }
}

/// Two servers, whose launcher may start others in their places.
struct ReplacingJob {
  explicit ReplacingJob(int restarts)
      : job({.workers = 1,
             .servers = 2,
             .has_launcher = true,
             .servers_may_change = true,
             .launcher_starts_workers = true,
             .restarts = restarts}) {
    job.beating = {launcher, worker, first, second};
  }
  /// Servers that the launcher was told to start since the last call.
  std::vector<control::Order> started() {
    std::vector<control::Order> starts = job.take<control::Order>(launcher);
    std::erase_if(starts, [](const control::Order& order) { return order.what() != control::Order::START; });
    return starts;
  }
  std::vector<control::Order> kill(ConnectionId server) {
    job.beating.erase(server);
    job.close(server);
    job.exit(launcher, server, 9, false, kStartedServer);
    return started();
  }
  std::vector<control::Order> scale(int servers) {
    control::Order order;
    order.set_what(control::Order::SCALE);
    order.set_servers(servers);
    job.say(observer, order);
    return started();
  }
  SimulatedJob job;
  ConnectionId launcher = job.join(control::LAUNCHER);
  ConnectionId worker = job.join();
  ConnectionId first = job.join(control::SERVER);
  ConnectionId second = job.join(control::SERVER);
  ConnectionId observer = job.join(control::OBSERVER);
};

TEST(CoordinatorServers, ADeadServerIsReplacedIfAnotherHasWhatItHeldAsOftenAsProcessesMayBeStarted) {
  ReplacingJob replacing(1);
  const auto starts = replacing.kill(replacing.first);
  ASSERT_EQ(starts.size(), 1U);
  EXPECT_EQ(starts[0].workers(), 0);
  EXPECT_EQ(starts[0].servers(), 1);
  EXPECT_THAT(starts[0].reason(), testing::HasSubstr("server 1 (pid "));
  EXPECT_THAT(starts[0].reason(), testing::HasSubstr("is replaced (1 of 1 restarts)"));
  EXPECT_THAT(replacing.kill(replacing.second), testing::IsEmpty());
}

TEST(CoordinatorServers, OneThatIsOnItsWayIsMissedAlsoWhenNoMoreAreWantedThanThat) {
  ReplacingJob replacing(2);
  EXPECT_THAT(replacing.kill(replacing.second), testing::SizeIs(1));
  EXPECT_THAT(replacing.scale(2), testing::IsEmpty());
  EXPECT_EQ(replacing.job.last<control::OrderAnswer>(replacing.observer).text(), "1 worker, 2 servers, as it is");
  replacing.job.exit(replacing.launcher, ConnectionId{500}, 9, false, kStartedServer);  // before it joined
  EXPECT_THAT(replacing.started(), testing::SizeIs(1));
}

TEST(CoordinatorServers, ADeadWorkersLeaseIsGivenToOthersWhenAllThatLiveHaveFencedIt) {
  InsideJob inside;
  inside.ask(1);
  const auto lease = inside.job.last<control::LeaseGrant>(inside.workers[1]).lease();
  inside.ask(0);
  inside.lose(1);
  const auto lost = inside.job.last<control::Lost>(inside.workers[0]).member().incarnation();
  inside.confirm(0, lost, lease, 2);
  EXPECT_THAT(inside.job.take<control::LeaseGrant>(inside.workers[0]), testing::IsEmpty());
  inside.confirm(2, lost, lease, 1);
  const auto grant = inside.job.last<control::LeaseGrant>(inside.workers[0]);
  EXPECT_EQ(grant.lease(), lease);
  EXPECT_EQ(grant.next_push(), 1U);
}

TEST(CoordinatorServers, WhoHoldsNothingHasNoSayInHowFarALeaseIs) {
  InsideJob inside;
  inside.ask(1);
  const auto lease = inside.job.last<control::LeaseGrant>(inside.workers[1]).lease();
  inside.ask(0);
  inside.lose(1);
  control::FenceConfirmed nothing;
  nothing.set_incarnation(inside.job.last<control::Lost>(inside.workers[0]).member().incarnation());
  nothing.set_holds_nothing(true);
  inside.confirm(0, nothing.incarnation(), lease, 2);
  inside.job.say(inside.workers[2], nothing);
  EXPECT_EQ(inside.job.last<control::LeaseGrant>(inside.workers[0]).next_push(), 2U);
}

TEST(CoordinatorServers, WhoDiesBeforeItHasFencedAnotherIsNotWaitedFor) {
  InsideJob inside;
  inside.ask(1);
  const auto lease = inside.job.last<control::LeaseGrant>(inside.workers[1]).lease();
  inside.ask(0);
  inside.lose(1);
  const auto first = inside.job.last<control::Lost>(inside.workers[0]).member().incarnation();
  inside.confirm(0, first, lease, 3);
  inside.lose(2);
  EXPECT_EQ(inside.job.last<control::LeaseGrant>(inside.workers[0]).lease(), lease);
}

TEST(CoordinatorServers, AServerThatDiesWhileAnotherIsStartedIsReplacedToo) {
  ReplacingJob replacing(1);
  EXPECT_THAT(replacing.scale(3), testing::SizeIs(1));
  EXPECT_THAT(replacing.kill(replacing.second), testing::SizeIs(1));
}

}  // namespace
}  // namespace distbelief
