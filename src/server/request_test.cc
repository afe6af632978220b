#include "server/request.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <limits>

#include "params/update_rule.h"
#include "server/server_port.h"
#include "server/test_tables.h"
#include "transport/local/local_fabric.h"

namespace distbelief {
namespace {

using Kind = RequestHead::Kind;

ParameterTable four_blocks() {
  ParameterTable table;
  table.add("weight", {.name = "weight", .shape = {4096}, .init = {}, .row_floats = 2});
  return table;
}

/// A server of four blocks of 1024 floats.
class Requests : public testing::Test {
 protected:
  std::unique_ptr<ParameterServer> server() const {
    return std::make_unique<ParameterServer>(
        table_, map_, std::vector<int>{0, 1, 2, 3}, *rule_, std::vector<float>(static_cast<std::size_t>(table_.size())),
        ParameterServer::Options{.update = [](std::uint64_t, int) { return UpdateOptions{.rate = 1}; }});
  }
  struct Message {
    RequestHead head;
    std::vector<std::byte> body;
  };
  Message message(Kind kind, const std::vector<FloatRun>& runs, std::size_t floats) const {
    const std::size_t blocks = map_.blocks().size();
    Message made = {{.kind = kind, .incarnation = 1, .push = {1, 0}, .scale = 1}, {}};
    made.head.runs = runs.size();
    made.head.body_bytes = runs_request_bytes(kind, blocks, runs.size(), floats);
    made.body.resize(made.head.body_bytes);
    if (!runs.empty()) {
      std::memcpy(made.body.data() + blocks * sizeof(std::uint64_t), runs.data(), runs.size() * sizeof(FloatRun));
    }
    return made;
  }
  /// Whether a server would answer it.
  bool fits(Kind kind, const std::vector<FloatRun>& runs, std::size_t floats = 0) const {
    const std::unique_ptr<ParameterServer> one = server();
    const Message made = message(kind, runs, floats);
    return is_request(made.head, one->blocks(), one->floats()) && is_body(*one, made.head, made.body);
  }

  const ParameterTable table_ = four_blocks();
  const BlockMap map_ = BlockMap(table_, 1);
  const std::unique_ptr<UpdateRule> rule_ = make_rule({.name = "sgd"});
};

TEST_F(Requests, RunsAscendAndLieInsideBlocks) {
  ASSERT_EQ(map_.blocks().size(), 4U);
  const auto last = std::numeric_limits<std::uint32_t>::max();
  for (const Kind kind : {Kind::push, Kind::fetch}) {
    EXPECT_TRUE(fits(kind, {}));
    EXPECT_TRUE(fits(kind, {{0, 2}, {2, 2}, {1022, 2}, {1024, 6}, {4094, 2}}, 14));
    EXPECT_TRUE(fits(kind, {{0, 1024}, {3072, 1024}}, 2048));
    EXPECT_FALSE(fits(kind, {{0, 2}, {4, 0}}, 2)) << "empty";
    EXPECT_FALSE(fits(kind, {{4, 2}, {0, 2}}, 4)) << "descending";
    EXPECT_FALSE(fits(kind, {{0, 4}, {2, 4}}, 8)) << "overlapping";
    EXPECT_FALSE(fits(kind, {{0, 2}, {0, 2}}, 4)) << "twice";
    EXPECT_FALSE(fits(kind, {{1022, 4}}, 4)) << "in two blocks";
    EXPECT_FALSE(fits(kind, {{4095, 2}}, 2)) << "beyond the end";
    EXPECT_FALSE(fits(kind, {{4096, 1}}, 1)) << "outside";
    EXPECT_FALSE(fits(kind, {{8, last}}, 8)) << "so long that its end begins anew";
    EXPECT_FALSE(fits(kind, {{last, last}}, 1));
  }
}

TEST_F(Requests, APushHasTheFloatsOfItsRuns) {
  EXPECT_FALSE(fits(Kind::push, {{0, 2}, {8, 2}}, 3));
  EXPECT_FALSE(fits(Kind::push, {{0, 2}, {8, 2}}, 5));
  EXPECT_FALSE(fits(Kind::push, {}, 1));
}

TEST_F(Requests, BodiesOfRunsAreAsLongAsTheySayAndNoLongerThanWhole) {
  const std::size_t blocks = 4, floats = 4096;
  const auto is = [&](Kind kind, std::uint64_t runs, std::uint64_t bytes) {
    return is_request({.kind = kind, .runs = runs, .body_bytes = bytes}, blocks, floats);
  };
  const std::size_t whole = request_bytes(Kind::push, blocks, floats);
  EXPECT_TRUE(is(Kind::fetch, 2, 32 + 16));
  EXPECT_FALSE(is(Kind::fetch, 2, 32 + 16 + 4));
  EXPECT_FALSE(is(Kind::fetch, 2, 32));
  EXPECT_TRUE(is(Kind::push, 2, 32 + 16 + 8));
  EXPECT_FALSE(is(Kind::push, 2, 32 + 16 + 7));
  EXPECT_FALSE(is(Kind::push, 2, 32 + 12));
  EXPECT_TRUE(is(Kind::push, 2, whole));
  EXPECT_FALSE(is(Kind::push, 2, whole + 4));
  EXPECT_FALSE(is(Kind::fetch, 4096, 32 + 4096 * 8));
  for (const std::uint64_t huge : {RequestHead::kWhole - 1, RequestHead::kWhole / 8 + 1, RequestHead::kWhole / 8 - 3}) {
    EXPECT_FALSE(is(Kind::fetch, huge, 32));
    EXPECT_FALSE(is(Kind::push, huge, 32));
  }
  EXPECT_FALSE(is(Kind::set, 2, 32 + 16));
  EXPECT_FALSE(is(Kind::flush, 0, 0));
}

TEST_F(Requests, AClientThatNamesRunsWhichAreNoneIsLost) {
  std::vector<std::unique_ptr<Fabric>> fabrics = make_local_fabrics(2);
  Fabric &here = *fabrics[0], &there = *fabrics[1];
  const std::unique_ptr<ParameterServer> one = server();
  OrderedServer ordered(*one, {});
  ServerPort port(here, ordered, {{.rank = Rank{1}}}, {.view = 1});
  const auto tag = [](std::uint32_t turn, Part part) {
    return channel_tag(1, ClientRole::worker, Channel::change, turn, part);
  };
  const auto advance_until_ended = [&](Fabric& fabric, Transfer& transfer) {
    for (const Clock::time_point end = Clock::now() + kPatience; !fabric.progress(transfer) && Clock::now() < end;) {
      port.advance();
    }
    return fabric.wait(transfer, Clock::now());
  };
  Transfer probe;  // of something that is never sent
  std::byte nothing = {};
  here.receive(probe, Rank{1}, {99, 99}, {&nothing, 1});
  const std::array<Message, 2> sent = {message(Kind::push, {{0, 2}, {8, 2}}, 4),
                                       message(Kind::push, {{8, 2}, {0, 2}}, 4)};
  std::array<Transfer, 4> transfers;
  ReplyHead answer;
  for (std::uint32_t turn = 0; turn < 2; ++turn) {
    there.send(transfers[2 * turn], Rank{0}, tag(turn, Part::request_head),
               std::as_bytes(std::span(&sent[turn].head, 1)));
    there.send(transfers[2 * turn + 1], Rank{0}, tag(turn, Part::request_body), sent[turn].body);
    if (turn == 0) {
      Transfer reply;
      there.receive(reply, Rank{0}, tag(0, Part::reply_head), std::as_writable_bytes(std::span(&answer, 1)));
      EXPECT_TRUE(advance_until_ended(there, reply).ok());
      EXPECT_EQ(one->next_push(1), 1U);
    }
  }
  const Outcome outcome = advance_until_ended(here, probe);
  EXPECT_EQ(outcome.kind, Outcome::Kind::peer_lost);
  EXPECT_NE(outcome.reason.find("2 runs that are not of this server's blocks"), std::string::npos) << outcome.reason;
  EXPECT_EQ(one->next_push(1), 1U);
  for (Transfer& transfer : transfers) {
    there.cancel(transfer);
  }
}

}  // namespace
}  // namespace distbelief
