#pragma once

// What every Fabric promises, as tests. A claim is a function that every rank of a job of three runs at the same time,
// each on its own fabric: a thread each where a factory makes all fabrics in one process (the macro at the end), or a
// process each under mpirun:
//
//   for (const FabricClaim& claim : kFabricClaims) { claim.run(fabric); }   // then ask gtest how it went
//
// Every claim has an epoch of its own, so they can follow one another on one fabric; the one that cuts links is last.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "base/test_deadline.h"
#include "transport/fabric.h"

namespace distbelief::fabric_contract {

inline constexpr int kRanks = 3;
inline constexpr std::size_t kLong = tries<std::size_t>(5'000'000);  ///< bytes of a message that arrives in pieces

using Bytes = std::vector<std::byte>;
using Kind = Outcome::Kind;

/// Long enough that only a hang reaches it.
inline Clock::time_point far() { return Clock::now() + std::chrono::seconds(60); }
inline Clock::time_point near() { return Clock::now() + std::chrono::milliseconds(5); }

/// A message that no other (from, tag) has, so that mixed-up ones are noticed.
inline Bytes message(std::size_t bytes, Rank from, Tag tag) {
  Bytes made(bytes);
  std::uint32_t state = 0x9E3779B9U * (static_cast<std::uint32_t>(from.value) + 1) + 31 * tag.sequence + tag.epoch;
  for (std::byte& at : made) {
    state = state * 1664525U + 1013904223U;
    at = static_cast<std::byte>(state >> 24);
  }
  return made;
}

inline std::vector<Rank> peers_of(const Fabric& fabric) {
  std::vector<Rank> peers;
  for (int rank = 0; rank < fabric.size(); ++rank) {
    if (rank != fabric.rank().value) {
      peers.push_back(Rank{rank});
    }
  }
  return peers;
}

inline void expect_done(const Outcome& outcome) {
  EXPECT_EQ(outcome.kind, Kind::done) << "rank " << outcome.peer.value << ": " << outcome.reason;
}

/// Sends and waits; what is sent is a few bytes.
inline void tell(Fabric& fabric, Rank peer, Tag tag) {
  const Bytes sent = message(16, fabric.rank(), tag);
  Transfer transfer;
  fabric.send(transfer, peer, tag, sent);
  expect_done(fabric.wait(transfer, far()));
}

/// Waits for what tell() sends.
inline void hear(Fabric& fabric, Rank peer, Tag tag) {
  Bytes came(16);
  Transfer transfer;
  fabric.receive(transfer, peer, tag, came);
  expect_done(fabric.wait(transfer, far()));
  EXPECT_EQ(came, message(16, peer, tag));
}

/// All ranks have come here.
inline void meet(Fabric& fabric, Tag tag) {
  const std::vector<Rank> peers = peers_of(fabric);
  std::vector<Transfer> transfers(2 * peers.size());
  for (std::size_t i = 0; i < peers.size(); ++i) {
    fabric.receive(transfers[2 * i], peers[i], tag, {});
    fabric.send(transfers[2 * i + 1], peers[i], tag, {});
  }
  for (Transfer& transfer : transfers) {
    expect_done(fabric.wait(transfer, far()));
  }
}

inline void sizes_arrive_unchanged_both_ways_at_once(Fabric& fabric) {
  constexpr std::uint32_t kEpoch = 101;
  const std::vector<Rank> peers = peers_of(fabric);
  std::uint32_t sequence = 0;
  std::vector<Transfer> sends(peers.size());  // posted again and again
  std::vector<Transfer> receives(peers.size());
  for (const std::size_t bytes : {0UL, 1UL, 1024UL, kLong, 64UL, 0UL}) {
    const Tag tag = {kEpoch, sequence++};
    const Bytes sent = message(bytes, fabric.rank(), tag);
    std::vector<Bytes> came(peers.size(), Bytes(bytes));
    for (std::size_t i = 0; i < peers.size(); ++i) {
      fabric.receive(receives[i], peers[i], tag, came[i]);
      fabric.send(sends[i], peers[i], tag, sent);
    }
    for (std::size_t i = 0; i < peers.size(); ++i) {
      expect_done(fabric.wait(sends[i], far()));
      expect_done(fabric.wait(receives[i], far()));
      EXPECT_TRUE(came[i] == message(bytes, peers[i], tag)) << bytes << " bytes from rank " << peers[i].value;
    }
  }
}

inline void many_transfers_are_open_at_once(Fabric& fabric) {
  constexpr std::uint32_t kEpoch = 102;
  constexpr std::uint32_t kMessages = 200;
  struct Exchange {
    Bytes sent;
    Bytes came;
    Transfer send;
    Transfer receive;
  };
  const std::vector<Rank> peers = peers_of(fabric);
  std::vector<Exchange> exchanges(kMessages * peers.size());
  const auto size_of = [](std::uint32_t sequence) { return sequence % 7 == 0 ? 100'000 : 10 * sequence; };
  for (std::uint32_t i = 0; i < exchanges.size(); ++i) {
    const Rank peer = peers[i % peers.size()];
    const Tag tag = {kEpoch, static_cast<std::uint32_t>(i / peers.size())};
    exchanges[i].sent = message(size_of(tag.sequence), fabric.rank(), tag);
    exchanges[i].came.resize(size_of(tag.sequence));
    fabric.send(exchanges[i].send, peer, tag, exchanges[i].sent);
    fabric.receive(exchanges[i].receive, peer, tag, exchanges[i].came);
  }
  for (std::uint32_t i = 0; i < exchanges.size(); ++i) {
    expect_done(fabric.wait(exchanges[i].receive, far()));
    expect_done(fabric.wait(exchanges[i].send, far()));
    const Tag tag = {kEpoch, static_cast<std::uint32_t>(i / peers.size())};
    EXPECT_TRUE(exchanges[i].came == message(exchanges[i].came.size(), peers[i % peers.size()], tag)) << i;
  }
}

inline void messages_may_be_received_in_another_order(Fabric& fabric) {
  constexpr std::uint32_t kEpoch = 103;
  constexpr std::uint32_t kMessages = 8;
  const auto size_of = [](std::uint32_t sequence) { return sequence % 2 == 0 ? 300'000U : 3U; };
  if (fabric.rank() == Rank{0}) {
    std::vector<Bytes> sent;
    std::vector<Transfer> transfers(kMessages);
    for (std::uint32_t i = 0; i < kMessages; ++i) {
      sent.push_back(message(size_of(i), Rank{0}, {kEpoch, i}));
    }
    for (std::uint32_t i = 0; i < kMessages; ++i) {
      fabric.send(transfers[i], Rank{1}, {kEpoch, i}, sent[i]);
    }
    for (Transfer& transfer : transfers) {
      expect_done(fabric.wait(transfer, far()));
    }
  } else if (fabric.rank() == Rank{1}) {
    for (std::uint32_t i = kMessages; i-- > 0;) {
      Bytes came(size_of(i));
      Transfer transfer;
      fabric.receive(transfer, Rank{0}, {kEpoch, i}, came);
      expect_done(fabric.wait(transfer, far()));
      EXPECT_TRUE(came == message(size_of(i), Rank{0}, {kEpoch, i})) << i;
    }
  }
}

inline void receive_may_be_posted_before_and_after_the_send(Fabric& fabric) {
  constexpr std::uint32_t kEpoch = 104;
  for (std::uint32_t round = 0; round < 10; ++round) {
    const Tag before = {kEpoch, 10 * round};
    const Tag after = {kEpoch, 10 * round + 1};
    const Tag posted = {kEpoch, 10 * round + 2};
    const Tag sent = {kEpoch, 10 * round + 3};
    if (fabric.rank() == Rank{0}) {
      hear(fabric, Rank{1}, posted);
      tell(fabric, Rank{1}, before);
      const Bytes bytes = message(50'000, Rank{0}, after);
      Transfer early;
      fabric.send(early, Rank{1}, after, bytes);
      tell(fabric, Rank{1}, sent);
      expect_done(fabric.wait(early, far()));
    } else if (fabric.rank() == Rank{1}) {
      Bytes came(16);
      Transfer waiting;
      fabric.receive(waiting, Rank{0}, before, came);
      tell(fabric, Rank{0}, posted);
      expect_done(fabric.wait(waiting, far()));
      EXPECT_EQ(came, message(16, Rank{0}, before));
      hear(fabric, Rank{0}, sent);
      Bytes late(50'000);
      Transfer transfer;
      fabric.receive(transfer, Rank{0}, after, late);
      expect_done(fabric.wait(transfer, far()));
      EXPECT_TRUE(late == message(50'000, Rank{0}, after));
    }
  }
}

inline void progress_finishes_a_transfer_without_waiting(Fabric& fabric) {
  constexpr std::uint32_t kEpoch = 105;
  const Tag tag = {kEpoch, 0};
  const Rank peer{fabric.rank().value == 0 ? 1 : 0};
  if (fabric.rank().value <= 1) {
    const Bytes sent = message(200'000, fabric.rank(), tag);
    Bytes came(200'000);
    Transfer send;
    Transfer receive;
    fabric.send(send, peer, tag, sent);
    fabric.receive(receive, peer, tag, came);
    const auto give_up = far();
    while (!(fabric.progress(send) && fabric.progress(receive)) && Clock::now() < give_up) {
      std::this_thread::yield();
    }
    expect_done(fabric.wait(send, Clock::now()));
    expect_done(fabric.wait(receive, Clock::now()));
    EXPECT_TRUE(came == message(200'000, peer, tag));
  }
}

/// A receive is given up at its deadline; its message comes late and is thrown away, and those behind it arrive.
inline void late_message_is_thrown_away(Fabric& fabric) {
  constexpr std::uint32_t kEpoch = 106;
  for (std::uint32_t round = 0; round < 2; ++round) {
    const std::size_t bytes = round == 0 ? 100 : 3'000'000;
    const Tag late = {kEpoch, 10 * round};
    const Tag given_up = {kEpoch, 10 * round + 1};
    const Tag next = {kEpoch, 10 * round + 2};
    if (fabric.rank() == Rank{0}) {
      hear(fabric, Rank{1}, given_up);
      const Bytes sent = message(bytes, Rank{0}, late);
      Transfer transfer;
      fabric.send(transfer, Rank{1}, late, sent);
      tell(fabric, Rank{1}, next);
      const Outcome outcome = fabric.wait(transfer, near());  // some fabrics need the receiver for that, others do not
      EXPECT_TRUE(outcome.kind == Kind::done || outcome.kind == Kind::timed_out) << outcome.reason;
    } else if (fabric.rank() == Rank{1}) {
      Bytes untouched(bytes, std::byte{0xAA});
      Transfer transfer;
      fabric.receive(transfer, Rank{0}, late, untouched);
      const Outcome outcome = fabric.wait(transfer, near());
      EXPECT_EQ(outcome.kind, Kind::timed_out) << outcome.reason;
      EXPECT_EQ(outcome.peer, Rank{0});
      EXPECT_FALSE(outcome.reason.empty());
      tell(fabric, Rank{0}, given_up);
      hear(fabric, Rank{0}, next);
      EXPECT_TRUE(std::ranges::all_of(untouched, [](std::byte at) { return at == std::byte{0xAA}; }));
    }
  }
}

/// However far the message is when it is given up, and by whichever side: nothing is written or read afterwards.
inline void giving_up_in_the_middle_harms_nothing(Fabric& fabric) {
  constexpr std::uint32_t kEpoch = 107;
  constexpr std::size_t kBytes = kLong;
  for (std::uint32_t round = 0; round < 8; ++round) {
    const Tag tag = {kEpoch, 10 * round};
    const Tag next = {kEpoch, 10 * round + 1};
    const auto patience = std::chrono::microseconds(300 * round);
    if (fabric.rank() == Rank{0}) {
      Bytes sent = message(kBytes, Rank{0}, tag);
      Transfer transfer;
      fabric.send(transfer, Rank{1}, tag, sent);
      (void)fabric.progress(transfer);
      if (round % 2 == 0) {
        fabric.cancel(transfer);
      } else {
        (void)fabric.wait(transfer, Clock::now() + patience);
      }
      std::ranges::fill(sent, std::byte{0});  // must not be what the receiver sees
      tell(fabric, Rank{1}, next);
    } else if (fabric.rank() == Rank{1}) {
      Bytes came(kBytes);
      Transfer transfer;
      fabric.receive(transfer, Rank{0}, tag, came);
      const Outcome outcome = fabric.wait(transfer, Clock::now() + patience);
      if (outcome.ok()) {
        EXPECT_TRUE(came == message(kBytes, Rank{0}, tag));
      } else {
        EXPECT_EQ(outcome.kind, Kind::timed_out) << outcome.reason;
      }
      const Bytes before = came;
      hear(fabric, Rank{0}, next);
      EXPECT_TRUE(came == before) << "round " << round;
    }
  }
}

inline void cancelled_receive_leaves_its_memory_alone(Fabric& fabric) {
  constexpr std::uint32_t kEpoch = 108;
  const Tag tag = {kEpoch, 0};
  const Tag cancelled = {kEpoch, 1};
  const Tag next = {kEpoch, 2};
  if (fabric.rank() == Rank{0}) {
    hear(fabric, Rank{1}, cancelled);
    const Bytes sent = message(1000, Rank{0}, tag);
    Transfer transfer;
    fabric.send(transfer, Rank{1}, tag, sent);
    tell(fabric, Rank{1}, next);
    fabric.cancel(transfer);
    fabric.cancel(transfer);  // an idle one: nothing to do
  } else if (fabric.rank() == Rank{1}) {
    Bytes untouched(1000, std::byte{0xAA});
    Transfer transfer;
    fabric.receive(transfer, Rank{0}, tag, untouched);
    fabric.cancel(transfer);
    tell(fabric, Rank{0}, cancelled);
    hear(fabric, Rank{0}, next);
    EXPECT_TRUE(std::ranges::all_of(untouched, [](std::byte at) { return at == std::byte{0xAA}; }));
    fabric.receive(transfer, Rank{0}, {kEpoch, 3}, untouched);  // it can be posted again
    fabric.cancel(transfer);
  }
}

/// The receiver learns it, before or after the message came; the sender may.
inline void other_length_is_a_mismatch(Fabric& fabric) {
  constexpr std::uint32_t kEpoch = 109;
  std::uint32_t sequence = 0;
  for (const auto& [sent_bytes, expected_bytes] : {std::pair{100U, 99U}, {99U, 100U}, {0U, 1U}, {100'000U, 0U}}) {
    for (const bool posted_first : {true, false}) {
      const Tag tag = {kEpoch, sequence++};
      const Tag posted = {kEpoch, sequence++};
      const Tag sent = {kEpoch, sequence++};
      const Tag done = {kEpoch, sequence++};
      if (fabric.rank() == Rank{0}) {
        if (posted_first) {
          hear(fabric, Rank{1}, posted);
        }
        const Bytes bytes = message(sent_bytes, Rank{0}, tag);
        Transfer transfer;
        fabric.send(transfer, Rank{1}, tag, bytes);
        tell(fabric, Rank{1}, sent);
        hear(fabric, Rank{1}, done);
        const Outcome outcome = fabric.wait(transfer, far());
        EXPECT_TRUE(outcome.kind == Kind::done || outcome.kind == Kind::mismatch) << outcome.reason;
      } else if (fabric.rank() == Rank{1}) {
        Bytes came(expected_bytes);
        Transfer transfer;
        if (posted_first) {
          fabric.receive(transfer, Rank{0}, tag, came);
          tell(fabric, Rank{0}, posted);
          hear(fabric, Rank{0}, sent);
        } else {
          hear(fabric, Rank{0}, sent);
          fabric.receive(transfer, Rank{0}, tag, came);
        }
        const Outcome outcome = fabric.wait(transfer, far());
        EXPECT_EQ(outcome.kind, Kind::mismatch) << sent_bytes << " sent, " << expected_bytes << " expected";
        EXPECT_EQ(outcome.peer, Rank{0});
        EXPECT_FALSE(outcome.reason.empty());
        tell(fabric, Rank{0}, done);
      }
    }
  }
}

/// By another thread, while a wait is open; another epoch's transfers with the same peers go on.
inline void ending_an_epoch_ends_what_is_open_and_posted_in_it(Fabric& fabric) {
  constexpr std::uint32_t kOld = 112;
  constexpr std::uint32_t kNew = 113;
  const std::vector<Rank> peers = peers_of(fabric);
  const auto expect_interrupted = [&](Transfer& transfer, Rank peer) {
    const Outcome outcome = fabric.wait(transfer, far());
    EXPECT_EQ(outcome.kind, Kind::interrupted) << outcome.reason;
    EXPECT_EQ(outcome.peer, peer);
    EXPECT_EQ(outcome.reason, "a member is lost");
  };
  std::vector<Bytes> never(peers.size(), Bytes(100'000, std::byte{0xAA}));
  std::vector<Bytes> came(peers.size(), Bytes(16));
  std::vector<Transfer> old(peers.size());
  std::vector<Transfer> fresh(peers.size());
  for (std::size_t i = 0; i < peers.size(); ++i) {
    fabric.receive(old[i], peers[i], {kOld, 1}, never[i]);
    fabric.receive(fresh[i], peers[i], {kNew, 1}, came[i]);
  }
  {
    std::jthread watcher([&] {
      fabric.end_epoch(kOld, "a member is lost");
      fabric.end_epoch(kOld, "a later reason");
    });
    for (std::size_t i = 0; i < peers.size(); ++i) {
      expect_interrupted(old[i], peers[i]);
    }
  }
  for (std::size_t i = 0; i < peers.size(); ++i) {
    fabric.send(old[i], peers[i], {kOld, 2}, never[i]);
    EXPECT_TRUE(fabric.progress(old[i]));
    expect_interrupted(old[i], peers[i]);
    fabric.receive(old[i], peers[i], {kOld, 3}, never[i]);
    fabric.cancel(old[i]);
    tell(fabric, peers[i], {kNew, 1});
  }
  for (std::size_t i = 0; i < peers.size(); ++i) {
    expect_done(fabric.wait(fresh[i], far()));
    EXPECT_EQ(came[i], message(16, peers[i], {kNew, 1}));
    EXPECT_TRUE(std::ranges::all_of(never[i], [](std::byte at) { return at == std::byte{0xAA}; }));
  }
  meet(fabric, {kNew, 2});
}

/// Rank 1 has not heard yet that the epoch is over, and sends more than anybody would keep for it.
inline void messages_of_an_ended_epoch_are_in_nobodys_way(Fabric& fabric) {
  constexpr std::uint32_t kOld = 114;
  constexpr std::uint32_t kNew = 115;
  constexpr std::uint32_t kMessages = 30;
  if (fabric.rank() == Rank{0}) {
    Bytes never(1000, std::byte{0xAA});
    Transfer waiting;
    fabric.receive(waiting, Rank{1}, {kOld, 1}, never);
    fabric.end_epoch(kOld, "a member is lost");
    EXPECT_EQ(fabric.wait(waiting, far()).kind, Kind::interrupted);
    tell(fabric, Rank{1}, {kNew, 0});
    hear(fabric, Rank{1}, {kNew, 1});
    Bytes whole(3'000'000);
    fabric.receive(waiting, Rank{1}, {kNew, 2}, whole);
    expect_done(fabric.wait(waiting, far()));
    EXPECT_TRUE(whole == message(whole.size(), Rank{1}, {kNew, 2}));
    EXPECT_TRUE(std::ranges::all_of(never, [](std::byte at) { return at == std::byte{0xAA}; }));
  } else if (fabric.rank() == Rank{1}) {
    hear(fabric, Rank{0}, {kNew, 0});
    const Bytes sent = message(3'000'000, Rank{1}, {kNew, 2});
    std::vector<Transfer> old(kMessages);
    for (std::uint32_t i = 0; i < kMessages; ++i) {  // among them what rank 0 had waited for
      fabric.send(old[i], Rank{0}, {kOld, i}, i == 1 ? std::span(sent).first(1000) : std::span(sent));
    }
    (void)fabric.progress(old[0]);
    fabric.end_epoch(kOld, "a member is lost");
    for (Transfer& transfer : old) {
      const Outcome outcome = fabric.wait(transfer, far());
      EXPECT_TRUE(outcome.kind == Kind::done || outcome.kind == Kind::interrupted) << outcome.reason;
    }
    tell(fabric, Rank{0}, {kNew, 1});
    Transfer transfer;
    fabric.send(transfer, Rank{0}, {kNew, 2}, sent);
    expect_done(fabric.wait(transfer, far()));
  }
}

/// By another thread, while a wait is open; the links to others stay.
inline void losing_a_peer_ends_what_is_open_with_it(Fabric& fabric) {
  constexpr std::uint32_t kEpoch = 110;
  if (fabric.rank() == Rank{0}) {
    Bytes never(10);
    Transfer receive;
    Transfer second;
    fabric.receive(receive, Rank{2}, {kEpoch, 0}, never);
    fabric.receive(second, Rank{2}, {kEpoch, 1}, never);
    std::jthread watcher([&] {
      fabric.lose(Rank{2}, "was killed by signal 9");
      fabric.lose(Rank{2}, "a later reason");
    });
    const auto expect_lost = [&](Transfer& transfer) {
      const Outcome outcome = fabric.wait(transfer, far());
      EXPECT_EQ(outcome.kind, Kind::peer_lost);
      EXPECT_EQ(outcome.peer, Rank{2});
      EXPECT_EQ(outcome.reason, "was killed by signal 9");
    };
    expect_lost(receive);
    expect_lost(second);
    fabric.send(receive, Rank{2}, {kEpoch, 2}, never);
    fabric.receive(second, Rank{2}, {kEpoch, 3}, never);
    EXPECT_TRUE(fabric.progress(receive));
    EXPECT_TRUE(fabric.progress(second));
    expect_lost(receive);
    expect_lost(second);
    fabric.receive(second, Rank{2}, {kEpoch, 3}, never);
    fabric.cancel(second);
    tell(fabric, Rank{1}, {kEpoch, 4});
    hear(fabric, Rank{1}, {kEpoch, 5});
  } else if (fabric.rank() == Rank{1}) {
    hear(fabric, Rank{0}, {kEpoch, 4});
    tell(fabric, Rank{0}, {kEpoch, 5});
    tell(fabric, Rank{2}, {kEpoch, 6});
  } else {
    hear(fabric, Rank{1}, {kEpoch, 6});
  }
}

/// Rank 2 destroys its fabric while the others wait for it, and they go on between themselves.
inline void others_lose_a_peer_that_is_destroyed(std::unique_ptr<Fabric> fabric) {
  constexpr std::uint32_t kEpoch = 111;
  meet(*fabric, {kEpoch, 0});
  if (fabric->rank() == Rank{2}) {
    return;
  }
  Bytes never(5'000'000);
  Transfer receive;
  Transfer send;
  fabric->receive(receive, Rank{2}, {kEpoch, 1}, never);
  fabric->send(send, Rank{2}, {kEpoch, 1}, never);
  const auto expect_lost = [&](Transfer& transfer) {
    const Outcome outcome = fabric->wait(transfer, far());
    EXPECT_EQ(outcome.kind, Kind::peer_lost) << outcome.reason;
    EXPECT_EQ(outcome.peer, Rank{2});
    EXPECT_FALSE(outcome.reason.empty());
  };
  expect_lost(receive);
  if (const Outcome outcome = fabric->wait(send, far()); !outcome.ok()) {  // the network may have taken it in time
    EXPECT_EQ(outcome.kind, Kind::peer_lost) << outcome.reason;
  }
  fabric->receive(receive, Rank{2}, {kEpoch, 2}, never);
  fabric->send(send, Rank{2}, {kEpoch, 2}, never);
  expect_lost(receive);
  expect_lost(send);
  const Rank other{1 - fabric->rank().value};
  std::vector<Transfer> transfers(2);
  fabric->send(transfers[0], other, {kEpoch, 3}, {});
  fabric->receive(transfers[1], other, {kEpoch, 3}, {});
  expect_done(fabric->wait(transfers[0], far()));
  expect_done(fabric->wait(transfers[1], far()));
}

}  // namespace distbelief::fabric_contract

namespace distbelief {

struct FabricClaim {
  const char* name;
  void (*run)(Fabric& fabric);
  friend void PrintTo(const FabricClaim& claim, std::ostream* out) { *out << claim.name; }
};

#define DISTBELIEF_CLAIM(name) \
  FabricClaim { #name, fabric_contract::name }
/// All but others_lose_a_peer_that_is_destroyed(), which needs to own its fabric.
inline constexpr std::array kFabricClaims = {
    DISTBELIEF_CLAIM(sizes_arrive_unchanged_both_ways_at_once),
    DISTBELIEF_CLAIM(many_transfers_are_open_at_once),
    DISTBELIEF_CLAIM(messages_may_be_received_in_another_order),
    DISTBELIEF_CLAIM(receive_may_be_posted_before_and_after_the_send),
    DISTBELIEF_CLAIM(progress_finishes_a_transfer_without_waiting),
    DISTBELIEF_CLAIM(late_message_is_thrown_away),
    DISTBELIEF_CLAIM(giving_up_in_the_middle_harms_nothing),
    DISTBELIEF_CLAIM(cancelled_receive_leaves_its_memory_alone),
    DISTBELIEF_CLAIM(other_length_is_a_mismatch),
    DISTBELIEF_CLAIM(ending_an_epoch_ends_what_is_open_and_posted_in_it),
    DISTBELIEF_CLAIM(messages_of_an_ended_epoch_are_in_nobodys_way),
    DISTBELIEF_CLAIM(losing_a_peer_ends_what_is_open_with_it),
};
#undef DISTBELIEF_CLAIM

/// Makes the fabrics of one new job, each to be used by a thread of its own.
using FabricFactory = std::vector<std::unique_ptr<Fabric>> (*)(int ranks);

/// Runs each rank on a thread of its own. The fabrics live until all threads ended, unless `run` takes one.
inline void run_ranks(std::vector<std::unique_ptr<Fabric>> fabrics,
                      const std::function<void(std::unique_ptr<Fabric>& fabric)>& run) {
  std::vector<std::jthread> threads;
  for (std::unique_ptr<Fabric>& fabric : fabrics) {
    threads.emplace_back([&run, &fabric] { run(fabric); });
  }
  for (std::jthread& thread : threads) {
    thread.join();
  }
}

class FabricContract : public testing::TestWithParam<std::tuple<FabricFactory, FabricClaim>> {};

/// The suite for fabrics that a FabricFactory makes in one process.
#define DISTBELIEF_INSTANTIATE_FABRIC_CONTRACT(Name, factory)                                        \
  INSTANTIATE_TEST_SUITE_P(                                                                          \
      Name, FabricContract,                                                                          \
      testing::Combine(testing::Values(FabricFactory{factory}), testing::ValuesIn(kFabricClaims)),   \
      [](const auto& claim) { return std::string(std::get<1>(claim.param).name); });                 \
  TEST(Name##FabricContract, OthersLoseAPeerThatIsDestroyed) {                                       \
    run_ranks(FabricFactory{factory}(fabric_contract::kRanks), [](std::unique_ptr<Fabric>& fabric) { \
      fabric_contract::others_lose_a_peer_that_is_destroyed(std::move(fabric));                      \
    });                                                                                              \
  }

}  // namespace distbelief
