#include "comm/peer_rounds.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "base/test_deadline.h"
#include "comm/run_ranks.h"

namespace distbelief {
namespace {

struct Word {
  std::uint64_t from, round;
};

/// Says so until it fits.
void say(PeerRounds& rounds, int position) {
  std::optional<std::span<std::byte>> place;
  while (!(place = rounds.outgoing())) {
    ASSERT_TRUE(rounds.outcome().ok()) << rounds.outcome().reason;
    rounds.progress();
    std::this_thread::yield();
  }
  const Word word = {static_cast<std::uint64_t>(position), rounds.sent() + 1};
  std::memcpy(place->data(), &word, sizeof word);
  rounds.send();
}

void hear(PeerRounds& rounds, int from) {
  const auto message = rounds.wait_for(from, soon());
  ASSERT_TRUE(message) << rounds.outcome().reason;
  Word word{};
  std::memcpy(&word, message->data(), sizeof word);
  EXPECT_EQ(word.from, static_cast<std::uint64_t>(from));
  EXPECT_EQ(word.round, rounds.read(from) + 1);
  rounds.release(from);
}

TEST(PeerRounds, EveryMessageComesOnceAndInOrderBetweenCollectives) {
  run_ranks(3, [](Fabric& fabric) {
    Group group(fabric, all_ranks(fabric), 1);
    PeerRounds rounds(group, sizeof(Word), 2);
    for (int round = 0; round < 50; ++round) {
      say(rounds, group.position());
      for (int from = 0; from < 3; ++from) {
        if (from != group.position()) {
          hear(rounds, from);
        }
      }
      if (round % 7 == 0) {
        float one = 1;
        ASSERT_TRUE(group.all_reduce(std::span(&one, 1), soon()).ok());
        EXPECT_EQ(one, 3.0F);
      }
    }
  });
}

TEST(PeerRounds, WhoIsNotReadHasAWindowAndNoMore) {
  run_ranks(2, [](Fabric& fabric) {
    Group group(fabric, all_ranks(fabric), 1);
    PeerRounds rounds(group, sizeof(Word), 3);
    ASSERT_TRUE(group.barrier(soon()).ok());  // the first receive is posted
    if (group.position() == 0) {
      for (int round = 0; round < 4; ++round) {
        ASSERT_TRUE(rounds.outgoing());
        say(rounds, 0);
      }
      EXPECT_FALSE(rounds.outgoing());  // one was taken by the peer's posted receive, three are on their way
      EXPECT_FALSE(rounds.all_delivered());
      ASSERT_TRUE(group.barrier(soon()).ok());
      while (!rounds.all_delivered()) {
        std::this_thread::yield();
      }
    } else {
      ASSERT_TRUE(group.barrier(soon()).ok());
      for (int round = 0; round < 4; ++round) {
        hear(rounds, 0);
      }
    }
    ASSERT_TRUE(group.barrier(soon()).ok());
  });
}

TEST(PeerRounds, ALostPeerIsNamed) {
  run_ranks(3, [](Fabric& fabric) {
    Group group(fabric, all_ranks(fabric), 1);
    PeerRounds rounds(group, sizeof(Word), 1);
    if (group.position() == 1) {
      return;
    }
    EXPECT_FALSE(rounds.wait_for(1, soon()));
    EXPECT_EQ(rounds.outcome().kind, Outcome::Kind::peer_lost);
    EXPECT_EQ(rounds.outcome().peer, Rank{1});
    EXPECT_FALSE(rounds.outgoing());
  });
}

}  // namespace
}  // namespace distbelief
