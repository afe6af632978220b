#include "transport/faulty/faulty_fabric.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/test_deadline.h"
#include "transport/fabric_contract.h"
#include "transport/local/local_fabric.h"

namespace distbelief {
namespace {

using fabric_contract::Bytes;
using Kind = Outcome::Kind;
using std::chrono::milliseconds;

std::vector<std::unique_ptr<Fabric>> without_faults(int ranks) {
  std::vector<std::unique_ptr<Fabric>> fabrics = make_local_fabrics(ranks);
  for (auto& fabric : fabrics) {
    fabric = std::make_unique<FaultyFabric>(std::move(fabric), 1);
  }
  return fabrics;
}

/// A fault that is there and changes nothing takes the other way through wait().
std::vector<std::unique_ptr<Fabric>> with_a_harmless_fault(int ranks) {
  std::vector<std::unique_ptr<Fabric>> fabrics = without_faults(ranks);
  for (auto& fabric : fabrics) {
    static_cast<FaultyFabric&>(*fabric).inject({.kind = Fault::Kind::drop, .probability = 0});
  }
  return fabrics;
}

DISTBELIEF_INSTANTIATE_FABRIC_CONTRACT(FaultyWithoutFaults, without_faults)
DISTBELIEF_INSTANTIATE_FABRIC_CONTRACT(FaultyButHarmless, with_a_harmless_fault)

/// Rank 0 has faults, rank 1 has none.
struct Pair {
  explicit Pair(std::uint64_t seed = 1) {
    auto fabrics = make_local_fabrics(2);
    faulty = std::make_unique<FaultyFabric>(std::move(fabrics[0]), seed);
    plain = std::move(fabrics[1]);
  }

  /// Rank 0 sends a message, and whether rank 1 has it by its deadline. Both wait on threads of their own.
  Kind arrives(std::uint32_t sequence, Clock::time_point deadline, std::size_t bytes = 8) {
    std::jthread sender([&, sequence, bytes] {
      const Bytes sent(bytes, std::byte{1});
      Transfer transfer;
      faulty->send(transfer, Rank{1}, {1, sequence}, sent);
      (void)faulty->wait(transfer, deadline);
    });
    Bytes came(bytes);
    Transfer transfer;
    plain->receive(transfer, Rank{0}, {1, sequence}, came);
    return plain->wait(transfer, deadline).kind;
  }

  std::unique_ptr<FaultyFabric> faulty;
  std::unique_ptr<Fabric> plain;
};

TEST(FaultyFabric, DelayHoldsAMessageBackForAsLong) {
  Pair pair;
  pair.faulty->inject({.kind = Fault::Kind::delay, .peer = Rank{1}, .delay = milliseconds(30)});
  const auto start = Clock::now();
  EXPECT_EQ(pair.arrives(1, soon()), Kind::done);
  EXPECT_GE(Clock::now() - start, milliseconds(30));
}

TEST(FaultyFabric, SlowLinkCarriesOneMessageAfterTheOther) {
  Pair pair;
  pair.faulty->inject({.kind = Fault::Kind::slow, .bytes_per_second = 1e6});
  const auto start = Clock::now();
  EXPECT_EQ(pair.arrives(1, soon(), 20'000), Kind::done);
  EXPECT_EQ(pair.arrives(2, soon(), 20'000), Kind::done);
  EXPECT_GE(Clock::now() - start, milliseconds(40));
}

TEST(FaultyFabric, DroppedMessageIsSentButDoesNotArrive) {
  Pair pair;
  const auto drop = pair.faulty->inject({.kind = Fault::Kind::drop});
  const Bytes sent(8);
  Transfer send;
  pair.faulty->send(send, Rank{1}, {1, 1}, sent);
  EXPECT_TRUE(pair.faulty->wait(send, soon()).ok());
  Bytes came(8);
  Transfer receive;
  pair.plain->receive(receive, Rank{0}, {1, 1}, came);
  EXPECT_EQ(pair.plain->wait(receive, Clock::now() + milliseconds(1)).kind, Kind::timed_out);
  pair.faulty->lift(drop);
  EXPECT_EQ(pair.arrives(2, soon()), Kind::done);
}

TEST(FaultyFabric, WhatIsDroppedIsDecidedByTheSeed) {
  const auto dropped = [](std::uint64_t seed) {
    Pair pair(seed);
    pair.faulty->inject({.kind = Fault::Kind::drop, .probability = 0.5});
    std::string which;
    for (std::uint32_t i = 0; i < 64; ++i) {
      Transfer send;
      pair.faulty->send(send, Rank{1}, {1, i}, {});
      which += pair.faulty->progress(send) ? 'x' : '.';  // without a receiver only a dropped one is done
      pair.faulty->cancel(send);
    }
    return which;
  };
  EXPECT_EQ(dropped(1), dropped(1));
  EXPECT_NE(dropped(1), dropped(2));
  EXPECT_NE(dropped(1), std::string(64, 'x'));
  EXPECT_NE(dropped(1), std::string(64, '.'));
}

TEST(FaultyFabric, CutHoldsBothDirectionsUntilItIsLifted) {
  Pair pair;
  pair.faulty->inject({.kind = Fault::Kind::cut});
  const Bytes bytes(8, std::byte{3});
  Bytes came_in(8);
  Bytes came_out(8);
  Transfer out;
  Transfer in;
  Transfer their_in;
  Transfer their_out;
  pair.faulty->send(out, Rank{1}, {1, 1}, bytes);
  pair.faulty->receive(in, Rank{1}, {1, 2}, came_in);
  pair.plain->receive(their_in, Rank{0}, {1, 1}, came_out);
  pair.plain->send(their_out, Rank{0}, {1, 2}, bytes);
  EXPECT_FALSE(pair.faulty->progress(out));
  EXPECT_FALSE(pair.faulty->progress(in));
  EXPECT_FALSE(pair.plain->progress(their_in));
  std::jthread mender([&] { pair.faulty->lift_all(); });
  EXPECT_TRUE(pair.faulty->wait(in, soon()).ok());
  EXPECT_TRUE(pair.faulty->wait(out, soon()).ok());
  EXPECT_TRUE(pair.plain->wait(their_in, soon()).ok());
  EXPECT_TRUE(pair.plain->wait(their_out, soon()).ok());
  EXPECT_EQ(came_in, bytes);
  EXPECT_EQ(came_out, bytes);
}

TEST(FaultyFabric, CutForATimeEndsByItself) {
  Pair pair;
  const auto until = Clock::now() + milliseconds(30);
  pair.faulty->inject({.kind = Fault::Kind::cut, .until = until});
  EXPECT_EQ(pair.arrives(1, soon()), Kind::done);
  EXPECT_GE(Clock::now(), until);
}

TEST(FaultyFabric, CutWithoutEndIsNothingButSilence) {
  Pair pair;
  pair.faulty->inject({.kind = Fault::Kind::cut});
  EXPECT_EQ(pair.arrives(1, Clock::now() + milliseconds(20)), Kind::timed_out);
}

TEST(FaultyFabric, CutCanEndWithTheLossOfThePeer) {
  Pair pair;
  pair.faulty->inject({.kind = Fault::Kind::cut, .until = Clock::now() + milliseconds(10), .then_lost = true});
  Transfer receive;
  pair.faulty->receive(receive, Rank{1}, {1, 1}, {});
  const Outcome outcome = pair.faulty->wait(receive, soon());
  EXPECT_EQ(outcome.kind, Kind::peer_lost);
  EXPECT_EQ(outcome.reason, "was cut off");
}

TEST(FaultyFabric, LosingAPeerEndsWhatACutHolds) {
  Pair pair;
  pair.faulty->inject({.kind = Fault::Kind::cut});
  Transfer send;
  pair.faulty->send(send, Rank{1}, {1, 1}, {});
  std::jthread watcher([&] { pair.faulty->lose(Rank{1}, "missed its heartbeats"); });
  const Outcome outcome = pair.faulty->wait(send, soon());
  EXPECT_EQ(outcome.kind, Kind::peer_lost);
  EXPECT_EQ(outcome.reason, "missed its heartbeats");
}

TEST(FaultyFabric, FaultThatBeginsLaterChangesNothingBefore) {
  Pair pair;
  pair.faulty->inject({.kind = Fault::Kind::cut, .from = Clock::now() + std::chrono::hours(1)});
  EXPECT_EQ(pair.arrives(1, soon()), Kind::done);
}

}  // namespace
}  // namespace distbelief
