#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <list>
#include <map>
#include <numeric>
#include <random>

#include "params/update_rule.h"
#include "server/ordered_server.h"
#include "server/replica_receiver.h"
#include "server/replica_sender.h"
#include "server/request.h"
#include "server/test_tables.h"
#include "transport/local/local_fabric.h"

namespace distbelief {
namespace {

constexpr std::uint32_t kView = 3;

std::vector<int> all_blocks(const BlockMap& map) {
  std::vector<int> blocks(map.blocks().size());
  std::iota(blocks.begin(), blocks.end(), 0);
  return blocks;
}

/// Two or three servers that hold the same shelf, the first as its primary; links move when the test says so.
class Replication : public testing::Test {
 protected:
  struct Holder {
    std::unique_ptr<ParameterServer> server;
    std::unique_ptr<OrderedServer> ordered;
    std::unique_ptr<ReplicaSender> sender;
    std::unique_ptr<ReplicaReceiver> receiver;
    std::vector<std::string> heard = {};
  };

  Holder& hold(std::size_t rank, OrderedServer::Options options, const ParameterServer::Options& own) {
    Holder& holder = holders_[rank];
    holder.server = std::make_unique<ParameterServer>(table_, map_, all_blocks(map_), *rule_, start_, own);
    options.replicated = true;
    options.heard = [&holder](const RequestHead& request, const ReplyHead&, std::string_view words) {
      holder.heard.push_back(std::to_string(request.push.lease) + "." + std::to_string(request.push.seq) +
                             std::string(words));
    };
    options.save_heard = [&holder] {
      std::string all;
      for (const std::string& one : holder.heard) {
        all += one + "\n";
      }
      return all;
    };
    options.restore_heard = [&holder](const std::string& all) {
      holder.heard.clear();
      for (std::size_t at = 0; at < all.size(); at = all.find('\n', at) + 1) {
        holder.heard.push_back(all.substr(at, all.find('\n', at) - at));
      }
    };
    holder.ordered = std::make_unique<OrderedServer>(*holder.server, options);
    return holder;
  }
  void make_pair(const ParameterServer::Options& own) {
    Holder& primary = hold(0, {.backup = Rank{1}}, own);
    primary.sender = std::make_unique<ReplicaSender>(*fabrics_[0], primary.ordered->log(), kView);
    listen(1, own, true);
  }
  void listen(std::size_t rank, const ParameterServer::Options& own, bool whole) {
    Holder& backup = hold(rank, {.whole = whole}, own);
    backup.receiver = std::make_unique<ReplicaReceiver>(*fabrics_[rank], *backup.ordered, Rank{0}, kView,
                                                        std::function<void()>([] {}));
  }
  /// True when it was in time.
  bool move_until(const std::function<bool()>& done) {
    for (const Clock::time_point end = Clock::now() + kPatience; Clock::now() < end;) {
      for (Holder& holder : holders_) {
        if (holder.sender) {
          holder.sender->advance();
        }
        if (holder.receiver) {
          holder.receiver->advance();
        }
      }
      if (done()) {
        return true;
      }
    }
    return false;
  }
  bool move_until_durable() {
    ReplicaLog& log = holders_[0].ordered->log();
    return move_until([&] { return log.durable(log.last()); });
  }

  struct Asked {
    ReplyHead reply;
    std::uint64_t position = 0;
  };
  Asked ask(Holder& holder, const RequestHead& request, std::span<const std::byte> body) {
    out_.resize(most_body_bytes(holder.server->blocks(), holder.server->floats()));
    Asked asked;
    asked.reply = holder.ordered->answer(request, body, out_, asked.position);
    return asked;
  }
  /// A change that a client might ask for, whole or of runs.
  Asked ask_at_random(std::mt19937& draw) {
    Holder& holder = holders_[0];
    const std::size_t blocks = holder.server->blocks();
    const std::uint64_t incarnation = 1 + draw() % 3;
    switch (draw() % 12) {
      case 0:
        return ask(holder, {.kind = RequestHead::Kind::idle, .incarnation = incarnation}, {});
      case 1:
        return ask(holder, {.kind = RequestHead::Kind::slow_down, .incarnation = 9, .scale = 0.75F}, {});
      case 2:
        return ask(holder, {.kind = RequestHead::Kind::flush, .incarnation = 9}, {});
      case 3: {
        std::vector<std::byte>& words = bodies_.emplace_back(kMostWords);
        words[0] = std::byte{'!'};
        return ask(holder, {.kind = RequestHead::Kind::report, .incarnation = incarnation, .body_bytes = kMostWords},
                   words);
      }
      default:
        break;
    }
    const bool in_runs = draw() % 3 == 0;
    const std::vector<FloatRun> runs = {{.begin = 4, .count = 8}, {.begin = 40, .count = 3}};
    const std::size_t floats = in_runs ? floats_of_runs(runs) : holder.server->floats();
    std::vector<std::byte>& body =
        bodies_.emplace_back(in_runs ? runs_request_bytes(RequestHead::Kind::push, blocks, runs.size(), floats)
                                     : request_bytes(RequestHead::Kind::push, blocks, floats));
    auto* versions = reinterpret_cast<std::uint64_t*>(body.data());
    for (std::size_t i = 0; i < blocks; ++i) {
      versions[i] = draw() % 4;
    }
    auto* after = reinterpret_cast<std::byte*>(versions + blocks);
    if (in_runs) {
      std::memcpy(after, runs.data(), runs.size() * sizeof(FloatRun));
      after += runs.size() * sizeof(FloatRun);
    }
    auto* numbers = reinterpret_cast<float*>(after);
    for (std::size_t i = 0; i < floats; ++i) {
      numbers[i] = std::uniform_real_distribution<float>(-1, 1)(draw);
    }
    const std::uint64_t lease = incarnation;
    return ask(holder,
               {.kind = RequestHead::Kind::push,
                .incarnation = incarnation,
                .push = {lease, next_[lease]++},
                .scale = 0.25F,
                .lease = {.epoch = 0, .first = 0, .count = 10},
                .runs = in_runs ? runs.size() : RequestHead::kWhole,
                .number = ++numbers_[incarnation],
                .body_bytes = body.size()},
               body);
  }

  const ParameterTable table_ = small_table();
  const BlockMap map_ = BlockMap(table_, 1);
  const std::vector<float> start_ = std::vector<float>(static_cast<std::size_t>(table_.size()), 0.5F);
  const std::unique_ptr<UpdateRule> rule_ = make_rule({.name = "adam"});
  std::vector<std::unique_ptr<Fabric>> fabrics_ = make_local_fabrics(3);
  std::array<Holder, 3> holders_;
  std::vector<std::byte> out_;
  std::list<std::vector<std::byte>> bodies_;  // borrowed until they are durable
  std::map<std::uint64_t, std::uint64_t> next_, numbers_;
};

ParameterServer::Options gathering() {
  return {.update = [](std::uint64_t pushes, int absent) {
    return UpdateOptions{.rate = 0.01F / static_cast<float>(1 + pushes),
                         .weight_decay = 0.001F,
                         .gather = std::max(1, 3 - absent),
                         .staleness_rate = true};
  }};
}

TEST_F(Replication, ABackupHasTheSameBitsAsItsPrimaryAndHearsTheSame) {
  make_pair(gathering());
  std::mt19937 draw(7);
  for (int i = 0; i < 200; ++i) {
    (void)ask_at_random(draw);
    if (draw() % 8 == 0) {
      ASSERT_TRUE(move_until_durable());
    }
  }
  (void)ask(holders_[0], {.kind = RequestHead::Kind::fence, .incarnation = 2}, {});
  ASSERT_TRUE(move_until_durable());
  EXPECT_EQ(holders_[1].server->copy(), holders_[0].server->copy());
  EXPECT_EQ(holders_[1].heard, holders_[0].heard);
  EXPECT_FALSE(holders_[0].heard.empty());
}

TEST_F(Replication, WithABoundOnStalenessBothRefuseTheSame) {
  ParameterServer::Options bounded = gathering();
  bounded.max_staleness = 1;
  make_pair(bounded);
  std::mt19937 draw(3);
  for (int i = 0; i < 100; ++i) {
    (void)ask_at_random(draw);
  }
  ASSERT_TRUE(move_until_durable());
  EXPECT_EQ(holders_[1].server->copy(), holders_[0].server->copy());
}

TEST_F(Replication, NothingIsDurableBeforeTheBackupHasIt) {
  make_pair(gathering());
  std::mt19937 draw(1);
  const Asked first = ask_at_random(draw);
  const Asked second = ask_at_random(draw);
  const ReplicaLog& log = holders_[0].ordered->log();
  EXPECT_FALSE(log.durable(first.position));
  ASSERT_TRUE(move_until([&] { return log.durable(first.position); }));
  EXPECT_GT(second.position, first.position);
  ASSERT_TRUE(move_until([&] { return log.durable(second.position); }));
}

TEST_F(Replication, WhatIsDurableStaysSoWhenHoldersChangePlaces) {
  make_pair(gathering());
  OrderedServer& primary = *holders_[0].ordered;
  const Asked asked = ask(holders_[0], {.kind = RequestHead::Kind::idle, .incarnation = 1}, {});
  ASSERT_TRUE(move_until_durable());
  holders_[0].sender.reset();
  primary.become_backup();  // and the reply is still to be sent
  EXPECT_TRUE(primary.durable(asked.position));
  primary.become_primary({});
  EXPECT_TRUE(primary.durable(asked.position));
  const Asked later = ask(holders_[0], {.kind = RequestHead::Kind::idle, .incarnation = 1}, {});
  EXPECT_GT(later.position, asked.position);
  EXPECT_TRUE(primary.durable(later.position));
}

TEST_F(Replication, TheSameTwoBeginAnewAndLoseNothingThatComesBeforeItIsExpected) {
  make_pair(gathering());
  std::mt19937 draw(5);
  Holder& primary = holders_[0];
  Holder& backup = holders_[1];
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 10; ++i) {
      (void)ask_at_random(draw);
      primary.sender->advance();  // so that it is on its way before the other looks
      ASSERT_TRUE(move_until_durable());
    }
    const std::uint32_t next = primary.sender->next_turn();
    EXPECT_EQ(backup.receiver->end(), next);  // which gives up what it still waited for
    backup.receiver.reset();
    primary.sender.reset();
    primary.ordered->become_primary(Rank{1});
    primary.sender = std::make_unique<ReplicaSender>(*fabrics_[0], primary.ordered->log(), kView,
                                                     [next](Rank) { return next; });
    (void)ask_at_random(draw);
    primary.sender->advance();
    backup.receiver = std::make_unique<ReplicaReceiver>(*fabrics_[1], *backup.ordered, Rank{0}, kView,
                                                        std::function<void()>([] {}), next);
  }
  ASSERT_TRUE(move_until_durable());
  EXPECT_EQ(backup.server->copy(), primary.server->copy());
}

TEST_F(Replication, WithoutABackupEverythingIsDurableAtOnce) {
  Holder& alone = hold(0, {}, gathering());
  std::mt19937 draw(1);
  EXPECT_TRUE(alone.ordered->log().durable(ask_at_random(draw).position));
}

TEST_F(Replication, WhatWaitsForALostBackupIsDurableWhenThereIsNone) {
  make_pair(gathering());
  std::mt19937 draw(1);
  const Asked asked = ask_at_random(draw);
  holders_[1].receiver.reset();
  fabrics_[1].reset();
  ReplicaLog& log = holders_[0].ordered->log();
  for (int i = 0; i < 100; ++i) {
    holders_[0].sender->advance();
  }
  EXPECT_FALSE(log.durable(asked.position));
  holders_[0].ordered->change_backup({});
  const Asked later = ask_at_random(draw);
  ASSERT_TRUE(move_until([&] { return log.durable(later.position); }));
}

TEST_F(Replication, ANewBackupGetsACopyWhileChangesGoOnAndIsWholeWhenItHasAll) {
  make_pair(gathering());
  std::mt19937 draw(5);
  for (int i = 0; i < 20; ++i) {
    (void)ask_at_random(draw);
  }
  ASSERT_TRUE(move_until_durable());
  (void)ask_at_random(draw);  // which the first backup never gets
  holders_[1].receiver.reset();
  fabrics_[1].reset();
  holders_[0].ordered->change_backup(Rank{2});
  listen(2, gathering(), false);
  for (int i = 0; i < 20; ++i) {  // durable without it, as it is not whole yet
    const Asked asked = ask_at_random(draw);
    if (i > 0) {
      EXPECT_TRUE(holders_[0].ordered->log().durable(asked.position));
    }
    holders_[0].sender->advance();
    EXPECT_FALSE(holders_[2].ordered->whole());
  }
  ASSERT_TRUE(move_until([&] { return holders_[2].ordered->whole(); }));
  const Asked asked = ask_at_random(draw);
  EXPECT_FALSE(holders_[0].ordered->log().durable(asked.position));
  ASSERT_TRUE(move_until_durable());
  EXPECT_EQ(holders_[2].server->copy(), holders_[0].server->copy());
  EXPECT_EQ(holders_[2].heard, holders_[0].heard);
}

TEST_F(Replication, AChangeThatIsAskedForAgainOfTheOtherHolderIsMadeOnce) {
  make_pair({.update = [](std::uint64_t, int) { return UpdateOptions{.rate = 1}; }});
  const RequestHead slower = {.kind = RequestHead::Kind::slow_down, .incarnation = 4, .scale = 0.5F, .number = 1};
  (void)ask(holders_[0], slower, {});
  ASSERT_TRUE(move_until_durable());
  (void)ask(holders_[0], slower, {});
  EXPECT_EQ(holders_[0].server->rate_factor(), 0.5F);
  (void)ask(holders_[1], slower, {});
  EXPECT_EQ(holders_[1].server->rate_factor(), 0.5F);
  RequestHead next = slower;
  next.number = 2;
  (void)ask(holders_[1], next, {});
  EXPECT_EQ(holders_[1].server->rate_factor(), 0.25F);
}

TEST_F(Replication, VectorsAndWhatIsAddedUpOfAGradientAreCopiedToo) {
  const ParameterServer::Options vectors = {.update = [](std::uint64_t, int) { return UpdateOptions{}; },
                                            .keeps_vectors = true};
  make_pair(vectors);
  std::mt19937 draw(11);
  const std::vector<VectorOrder> orders = {{.kind = VectorOrder::Kind::copy, .to = 5, .from = kValues},
                                           {.kind = VectorOrder::Kind::axpy, .to = kValues, .from = 5, .factor = 0.5},
                                           {.kind = VectorOrder::Kind::dot, .to = kValues, .from = 5}};
  const auto order = [&] {
    return ask(holders_[0],
               {.kind = RequestHead::Kind::vectors,
                .incarnation = 9,
                .number = ++numbers_[9],
                .body_bytes = orders.size() * sizeof(VectorOrder)},
               std::as_bytes(std::span(orders)));
  };
  for (int i = 0; i < 10; ++i) {
    (void)ask_at_random(draw);
  }
  (void)order();
  (void)ask_at_random(draw);
  ASSERT_TRUE(move_until_durable());
  EXPECT_EQ(holders_[1].server->copy(), holders_[0].server->copy());
  const double dot = *reinterpret_cast<const double*>((order(), out_.data()));
  ASSERT_TRUE(move_until_durable());
  // Asked again of the other, it tells what it told, and does nothing.
  const std::string before = holders_[1].server->copy();
  (void)ask(holders_[1],
            {.kind = RequestHead::Kind::vectors,
             .incarnation = 9,
             .number = numbers_[9],
             .body_bytes = orders.size() * sizeof(VectorOrder)},
            std::as_bytes(std::span(orders)));
  EXPECT_EQ(*reinterpret_cast<const double*>(out_.data()), dot);
  EXPECT_EQ(holders_[1].server->copy(), before);
}

}  // namespace
}  // namespace distbelief
