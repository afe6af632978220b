#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <thread>

#include "params/update_rule.h"
#include "server/served_job.h"
#include "server/test_tables.h"

namespace distbelief {
namespace {

std::vector<float> ramp(std::int64_t count, float step) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = step * static_cast<float>(i % 97);
  }
  return values;
}

class Served : public testing::Test {
 protected:
  const ParameterTable table_ = small_table();
  const std::vector<float> start_ = ramp(table_.size(), 0.5F);
  const std::unique_ptr<UpdateRule> rule_ = make_rule({.name = "sgd", .momentum = 0.9});

  static ServerClient::Unit unit(std::uint64_t lease, std::uint64_t seq, bool wants_values = true) {
    return {.id = {lease, seq}, .scale = 0.25F, .wants_values = wants_values};
  }
};

TEST_F(Served, APushIsTheUpdateOfOneShardBitForBit) {
  std::vector<float> expected = start_;
  ParameterShard whole(table_, table_.everything(), *rule_, expected);
  ServedJob job(table_, *rule_, start_, 3, 1, {.rate = 0.1F});
  ServerClient& client = job.client(0);
  std::vector<float> values(start_.size());
  client.begin_fetch();
  ASSERT_TRUE(client.wait_fetched(soon()).ok());
  client.take(values);
  EXPECT_EQ(values, start_);
  for (std::uint64_t step = 0; step < 5; ++step) {
    const std::vector<float> a = ramp(table_.size(), 0.01F * static_cast<float>(step + 1));
    const std::vector<float> b = ramp(table_.size(), -0.002F);
    const std::array<std::span<const float>, 2> parts = {a, b};
    (void)whole.apply({1, step}, parts, 0.25F, {.rate = 0.1F}, {});
    client.add(parts);
    ASSERT_TRUE(client.push(unit(1, step), soon()).outcome.ok());
    const ServerClient::PushReport report = client.wait_pushed(soon());
    ASSERT_TRUE(report.outcome.ok());
    EXPECT_EQ(report.status, ReplyHead::Status::done);
    EXPECT_EQ(report.staleness, 0);
    client.take(values);
    EXPECT_EQ(values, expected);
  }
}

TEST_F(Served, GatheredPushesMakeOneUpdateAndAFlushMakesTheRest) {
  const std::unique_ptr<UpdateRule> plain = make_rule({.name = "sgd"});
  ServedJob job(table_, *plain, start_, 2, 2, {.rate = 1, .gather = 2});
  std::vector<float> values(start_.size());
  const std::vector<float> ones(start_.size(), 1.0F);
  const std::span<const float> part = ones;
  const auto push = [&](int client, std::uint64_t lease) {
    job.client(client).add({&part, 1});
    (void)job.client(client).push(unit(lease, 0, false), soon());
    const ServerClient::PushReport report = job.client(client).wait_pushed(soon());
    EXPECT_TRUE(report.outcome.ok());
    EXPECT_EQ(report.status, ReplyHead::Status::done);
  };
  const auto fetched = [&] {
    job.client(0).begin_fetch();
    EXPECT_TRUE(job.client(0).wait_fetched(soon()).ok());
    job.client(0).take(values);
    return values[1];
  };
  for (int client = 0; client < 2; ++client) {
    job.client(client).begin_fetch();
    ASSERT_TRUE(job.client(client).wait_fetched(soon()).ok());
    job.client(client).take(values);
  }
  push(0, 1);
  EXPECT_EQ(fetched(), start_[1]);
  push(1, 2);
  EXPECT_EQ(fetched(), start_[1] - 0.25F);
  push(1, 3);
  EXPECT_EQ(job.client(0).order(RequestHead::Kind::flush, 0, soon()).status, ReplyHead::Status::done);
  EXPECT_EQ(fetched(), start_[1] - 0.5F);
}

/// Pushes and fetches in which every gradient is of ones.
class BoundedServed : public Served {
 protected:
  const std::unique_ptr<UpdateRule> plain_ = make_rule({.name = "sgd"});
  const std::vector<float> ones_ = std::vector<float>(start_.size(), 1.0F);
  std::vector<float> values_ = std::vector<float>(start_.size());

  void fetch(ServerClient& client) {
    client.begin_fetch();
    take(client);
  }
  void take(ServerClient& client) {
    ASSERT_TRUE(client.wait_fetched(soon()).ok());
    client.take(values_);
  }
  ServerClient::PushReport push(ServerClient& client, std::uint64_t lease, std::uint64_t seq = 0) {
    const std::span<const float> part = ones_;
    client.add({&part, 1});
    (void)client.push(unit(lease, seq, false), soon());
    ServerClient::PushReport report = client.wait_pushed(soon());
    EXPECT_TRUE(report.outcome.ok());
    return report;
  }
};

TEST_F(BoundedServed, AGradientThatIsTooOldIsRefusedAndMayComeAgain) {
  ServedJob job(table_, *plain_, start_, 2, 2, {.rate = 1}, 1);
  fetch(job.client(0));
  fetch(job.client(1));
  EXPECT_EQ(push(job.client(0), 1, 0).status, ReplyHead::Status::done);
  EXPECT_EQ(push(job.client(0), 1, 1).status, ReplyHead::Status::done);  // of values that are one update old
  const ServerClient::PushReport report = push(job.client(1), 2);
  EXPECT_EQ(report.status, ReplyHead::Status::late);
  EXPECT_FALSE(report.whole);
  fetch(job.client(0));
  EXPECT_EQ(values_[1], start_[1] - 0.5F);
  EXPECT_EQ(push(job.client(0), 2).status, ReplyHead::Status::done);       // by who leased it next
  EXPECT_EQ(push(job.client(1), 2).status, ReplyHead::Status::duplicate);  // old as it is
}

TEST_F(BoundedServed, WhoWaitsForNewerValuesGetsThemWhenAllHavePushed) {
  ServedJob job(table_, *plain_, start_, 2, 3, {.rate = 1, .gather = 3}, 0);
  for (int i = 0; i < 3; ++i) {
    fetch(job.client(i));
  }
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(push(job.client(i), static_cast<std::uint64_t>(i + 1)).whole);
    job.client(i).begin_fetch(ServerClient::Freshness::all_newer);
    if (i == 1) {
      EXPECT_EQ(job.client(0).wait_fetched(Clock::now() + std::chrono::milliseconds(20)).kind,
                Outcome::Kind::timed_out);
    }
  }
  for (int i = 0; i < 3; ++i) {
    take(job.client(i));
    EXPECT_EQ(values_[1], start_[1] - 0.25F);
  }
}

TEST_F(BoundedServed, WhoIsIdleIsNotWaitedForUntilItPushes) {
  ServedJob job(table_, *plain_, start_, 2, 2, {.rate = 1, .gather = 2}, 0);
  ServerClient& client = job.client(0);
  fetch(client);
  fetch(job.client(1));
  EXPECT_TRUE(push(client, 1).whole);
  client.begin_fetch(ServerClient::Freshness::all_newer);
  EXPECT_EQ(job.client(1).idle(soon()).status, ReplyHead::Status::done);
  take(client);
  EXPECT_EQ(values_[1], start_[1] - 0.25F);
  EXPECT_TRUE(push(client, 1, 1).whole);
  fetch(client);
  EXPECT_EQ(values_[1], start_[1] - 0.5F);
  fetch(job.client(1));
  EXPECT_TRUE(push(job.client(1), 2).whole);
  fetch(client);
  EXPECT_EQ(values_[1], start_[1] - 0.5F);
}

TEST_F(BoundedServed, AtTheEndNobodyWaits) {
  ServedJob job(table_, *plain_, start_, 1, 2, {.rate = 1, .gather = 2}, 0);
  ServerClient& client = job.client(0);
  fetch(client);
  EXPECT_TRUE(push(client, 1).whole);
  client.begin_fetch(ServerClient::Freshness::all_newer);
  job.server(0).end();
  job.port(0).server_changed();
  take(client);
  EXPECT_EQ(values_[1], start_[1]);
}

TEST_F(BoundedServed, AClientInTheServersProcessWaitsToo) {
  ServedJob job(table_, *plain_, start_, 1, 1, {.rate = 1}, 0);
  const std::size_t blocks = job.server(0).blocks();
  const std::vector<std::uint64_t> have(blocks, 0);
  const auto fetch_here = [&] {
    std::vector<std::uint64_t> versions(blocks + (job.server(0).floats() + 1) / 2);
    (void)job.port(0).answer_here({.kind = RequestHead::Kind::fetch, .awaits_newer = 1}, std::as_bytes(std::span(have)),
                                  std::as_writable_bytes(std::span(versions)));
    return versions[0];
  };
  std::uint64_t found = 0;
  {
    const std::jthread here([&] { found = fetch_here(); });
    fetch(job.client(0));
    EXPECT_EQ(push(job.client(0), 1).status, ReplyHead::Status::done);
  }
  EXPECT_EQ(found, 1U);
}

TEST_F(BoundedServed, WhenAllAreLetGoNobodyWaits) {
  ServedJob job(table_, *plain_, start_, 1, 1, {.rate = 1}, 0);
  ServerClient& client = job.client(0);
  fetch(client);
  client.begin_fetch(ServerClient::Freshness::all_newer);
  job.port(0).let_all_go();
  take(client);
  EXPECT_EQ(values_, start_);
}

TEST_F(Served, AnOrderToSlowDownHoldsForAllServers) {
  const std::unique_ptr<UpdateRule> plain = make_rule({.name = "sgd"});
  ServedJob job(table_, *plain, start_, 3, 1, {.rate = 1});
  ServerClient& client = job.client(0);
  std::vector<float> values(start_.size());
  EXPECT_TRUE(client.order(RequestHead::Kind::slow_down, 0.5F, soon()).outcome.ok());
  client.begin_fetch();
  ASSERT_TRUE(client.wait_fetched(soon()).ok());
  client.take(values);
  const std::vector<float> ones(start_.size(), 1.0F);
  const std::span<const float> part = ones;
  client.add({&part, 1});
  (void)client.push(unit(1, 0), soon());
  ASSERT_TRUE(client.wait_pushed(soon()).outcome.ok());
  client.take(values);
  for (const ParameterEntry& entry : table_.entries()) {
    const auto at = static_cast<std::size_t>(entry.range.begin);
    if (entry.spec.kind == ParameterKind::optimized) {
      EXPECT_EQ(values[at], start_[at] - 0.125F) << entry.name;
    }
  }
}

TEST_F(Served, GoesOnFromItsSavedStateBitForBit) {
  const std::vector<float> gradient = ramp(table_.size(), 0.01F);
  const std::span<const float> part = gradient;
  const auto fetch = [&](ServerClient& client, std::vector<float>& values) {
    client.begin_fetch();
    ASSERT_TRUE(client.wait_fetched(soon()).ok());
    client.take(values);
  };
  const auto push = [&](ServerClient& client, std::uint64_t lease, std::uint64_t seq) {
    client.add({&part, 1});
    ServerClient::Unit pushed = unit(lease, seq, false);
    pushed.lease = {.epoch = 3, .first = 100 * static_cast<std::int64_t>(lease), .count = 100};
    (void)client.push(pushed, soon());
    const ServerClient::PushReport report = client.wait_pushed(soon());
    EXPECT_TRUE(report.outcome.ok());
    return report.status;
  };
  std::vector<float> values(start_.size()), resumed(start_.size());
  std::vector<std::string> states;
  ServedJob job(table_, *rule_, start_, 2, 1, {.rate = 0.1F, .gather = 2});
  fetch(job.client(0), values);
  for (std::uint64_t seq = 0; seq < 3; ++seq) {
    EXPECT_EQ(push(job.client(0), 7, seq), ReplyHead::Status::done);
  }
  ASSERT_TRUE(job.client(0).save(states, soon()).outcome.ok());
  ASSERT_EQ(states.size(), 2U);
  const SavedLeases saved = saved_leases(states[0], "state");
  ASSERT_EQ(saved.leases.size(), 1U);
  EXPECT_EQ(saved.leases[0].id, 7U);
  EXPECT_EQ(saved.leases[0].samples.first, 700);
  EXPECT_EQ(saved.leases[0].next_push, 3U);

  ServedJob later(table_, *rule_, std::vector<float>(start_.size()), 2, 1, {.rate = 0.1F, .gather = 2});
  EXPECT_EQ(later.client(0).restore(states, soon()).status, ReplyHead::Status::done);
  fetch(later.client(0), resumed);
  for (ServedJob* one : {&job, &later}) {
    EXPECT_EQ(push(one->client(0), 7, 2), ReplyHead::Status::duplicate);
    EXPECT_EQ(push(one->client(0), 7, 3), ReplyHead::Status::done);
  }
  fetch(job.client(0), values);
  fetch(later.client(0), resumed);
  EXPECT_EQ(values, resumed);

  std::swap(states[0], states[1]);
  EXPECT_EQ(later.client(0).restore(states, soon()).status, ReplyHead::Status::damaged);
}

TEST_F(Served, NamesLeasesThatEndBetweenAMarkAndASave) {
  ServedJob job(table_, *rule_, start_, 1, 1, {.rate = 0.1F});
  const std::vector<float> gradient = ramp(table_.size(), 0.01F);
  const std::span<const float> part = gradient;
  const auto push = [&](std::uint64_t lease) {
    ServerClient::Unit pushed = unit(lease, 0, false);
    pushed.low_water = lease;  // all before are done
    job.client(0).add({&part, 1});
    (void)job.client(0).push(pushed, soon());
    EXPECT_TRUE(job.client(0).wait_pushed(soon()).outcome.ok());
  };
  const auto saved = [&] {
    std::vector<std::string> states;
    EXPECT_TRUE(job.client(0).save(states, soon()).outcome.ok());
    std::vector<std::pair<std::uint64_t, std::uint64_t>> leases;
    for (const SavedLease& lease : saved_leases(states.at(0), "state").leases) {
      leases.emplace_back(lease.id, lease.next_push);
    }
    return leases;
  };
  using Leases = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
  push(1);
  push(2);
  EXPECT_EQ(saved(), (Leases{{2, 1}}));
  EXPECT_TRUE(job.client(0).order(RequestHead::Kind::mark, 0, soon()).outcome.ok());
  push(3);
  EXPECT_EQ(saved(), (Leases{{2, SavedLease::kDone}, {3, 1}}));
  push(4);
  EXPECT_EQ(saved(), (Leases{{4, 1}}));
}

TEST_F(Served, AFetchBringsWhatOthersPushed) {
  ServedJob job(table_, *rule_, start_, 2, 2, {.rate = 0.1F});
  std::vector<float> mine(start_.size()), theirs(start_.size());
  const std::vector<float> gradient = ramp(table_.size(), 0.01F);
  const std::span<const float> part = gradient;
  for (int i = 0; i < 2; ++i) {
    job.client(i).begin_fetch();
    ASSERT_TRUE(job.client(i).wait_fetched(soon()).ok());
    job.client(i).take(i == 0 ? mine : theirs);
  }
  job.client(0).add({&part, 1});
  ASSERT_TRUE(job.client(0).push(unit(1, 0), soon()).outcome.ok());
  ASSERT_TRUE(job.client(0).wait_pushed(soon()).outcome.ok());
  job.client(0).take(mine);
  EXPECT_NE(mine, theirs);
  job.client(1).begin_fetch();
  ASSERT_TRUE(job.client(1).wait_fetched(soon()).ok());
  job.client(1).take(theirs);
  EXPECT_EQ(mine, theirs);
}

TEST_F(Served, AGradientOfOldValuesIsToldHowStaleItIs) {
  ServedJob job(table_, *rule_, start_, 2, 2, {.rate = 0.1F});
  std::vector<float> values(start_.size());
  const std::vector<float> gradient = ramp(table_.size(), 0.01F);
  const std::span<const float> part = gradient;
  for (int i = 0; i < 2; ++i) {
    job.client(i).begin_fetch();
    ASSERT_TRUE(job.client(i).wait_fetched(soon()).ok());
    job.client(i).take(values);
  }
  for (std::uint64_t step = 0; step < 3; ++step) {
    job.client(0).add({&part, 1});
    ASSERT_TRUE(job.client(0).push(unit(1, step), soon()).outcome.ok());
    ASSERT_TRUE(job.client(0).wait_pushed(soon()).outcome.ok());
  }
  job.client(1).add({&part, 1});
  ASSERT_TRUE(job.client(1).push(unit(2, 0), soon()).outcome.ok());
  const ServerClient::PushReport report = job.client(1).wait_pushed(soon());
  EXPECT_EQ(report.staleness, 3);
  EXPECT_EQ(report.staleness_most, 3U);
}

TEST_F(Served, APushThatComesTwiceEntersOnce) {
  ServedJob job(table_, *rule_, start_, 2, 2, {.rate = 0.1F});
  const std::vector<float> gradient = ramp(table_.size(), 0.01F);
  const std::span<const float> part = gradient;
  std::vector<float> first(start_.size()), second(start_.size());
  for (int i = 0; i < 2; ++i) {
    job.client(i).add({&part, 1});
    ASSERT_TRUE(job.client(i).push(unit(7, 0), soon()).outcome.ok());
    const ServerClient::PushReport report = job.client(i).wait_pushed(soon());
    EXPECT_EQ(report.status, i == 0 ? ReplyHead::Status::done : ReplyHead::Status::duplicate);
    job.client(i).take(i == 0 ? first : second);
  }
  EXPECT_EQ(first, second);
}

TEST_F(Served, AFencedClientChangesNothing) {
  ServedJob job(table_, *rule_, start_, 2, 2, {.rate = 0.1F});
  const std::vector<float> gradient = ramp(table_.size(), 0.01F);
  const std::span<const float> part = gradient;
  for (std::uint64_t step = 0; step < 2; ++step) {
    job.client(0).add({&part, 1});
    ASSERT_TRUE(job.client(0).push(unit(4, step, false), soon()).outcome.ok());
    ASSERT_TRUE(job.client(0).wait_pushed(soon()).outcome.ok());
    if (step == 0) {
      job.server(0).fence(1);
      job.server(1).fence(1);
    }
  }
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(job.server(i).next_push(4), 1U);
    ASSERT_EQ(job.server(i).open_leases().size(), 1U);
  }
}

TEST_F(Served, ManyClientsAtOnceLoseNoPush) {
  constexpr int kClients = 4;
  constexpr std::uint64_t kPushes = 50;
  const std::unique_ptr<UpdateRule> sgd = make_rule({.name = "sgd"});
  ServedJob job(table_, *sgd, start_, 2, kClients, {.rate = 1.0F});
  const std::vector<float> ones(start_.size(), 1.0F);
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < kClients; ++i) {
      threads.emplace_back([&, i] {
        const std::span<const float> part = ones;
        for (std::uint64_t step = 0; step < kPushes; ++step) {
          job.client(i).add({&part, 1});
          ServerClient::Unit pushed = unit(static_cast<std::uint64_t>(i) + 1, step, step % 3 == 0);
          pushed.scale = 1;
          EXPECT_TRUE(job.client(i).push(pushed, soon()).outcome.ok());
        }
        EXPECT_TRUE(job.client(i).wait_pushed(soon()).outcome.ok());
      });
    }
  }
  std::vector<float> values(start_.size());
  job.client(0).begin_fetch();
  ASSERT_TRUE(job.client(0).wait_fetched(soon()).ok());
  job.client(0).take(values);
  const ParameterEntry& weight = table_.at("a.weight");
  for (std::int64_t at = weight.range.begin; at < weight.range.end; ++at) {
    const auto i = static_cast<std::size_t>(at);
    ASSERT_EQ(values[i], start_[i] - static_cast<float>(kClients * kPushes)) << at;
  }
}

TEST_F(Served, AClientThatDiesDisturbsNobody) {
  ServedJob job(table_, *rule_, start_, 2, 2, {.rate = 0.1F});
  const std::vector<float> gradient = ramp(table_.size(), 0.01F);
  const std::span<const float> part = gradient;
  job.client(0).add({&part, 1});
  ASSERT_TRUE(job.client(0).push(unit(1, 0), soon()).outcome.ok());
  job.kill_client(0);
  for (std::uint64_t step = 0; step < 3; ++step) {
    job.client(1).add({&part, 1});
    ASSERT_TRUE(job.client(1).push(unit(2, step), soon()).outcome.ok());
    ASSERT_TRUE(job.client(1).wait_pushed(soon()).outcome.ok());
  }
}

}  // namespace
}  // namespace distbelief
