// mpirun -n 1..4 mpi_fabric_ranks [gtest options]: every rank runs all tests, in the same order, each on its own
// fabric. A rank says "rank N passed" when all went well, and "rank N finalized" when MPI ended well too.
#include <cstring>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "rank_program.h"
#if __has_include("transport/fabric_contract.h")
#include "transport/fabric_contract.h"
#define HAS_CONTRACT 1
#endif

namespace distbelief {
namespace {

MpiWorld* world = nullptr;
MpiFabric* fabric = nullptr;

using Kind = Outcome::Kind;

Rank self() { return fabric->rank(); }
Rank neighbour(int distance) { return Rank{(self().value + distance + fabric->size()) % fabric->size()}; }

std::vector<std::byte> pattern(std::size_t bytes, int seed) {
  std::vector<std::byte> made(bytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    made[i] = static_cast<std::byte>(i * 7 + static_cast<std::size_t>(seed) * 31 + (i >> 12));
  }
  return made;
}

void expect_done(const Outcome& outcome) { EXPECT_TRUE(outcome.ok()) << outcome.peer.value << ": " << outcome.reason; }

/// All ranks have come here.
void meet(Tag tag) {
  std::vector<Transfer> transfers(2 * static_cast<std::size_t>(fabric->size()));
  for (int rank = 0; rank < fabric->size(); ++rank) {
    if (rank != self().value) {
      fabric->receive(transfers[2 * static_cast<std::size_t>(rank)], Rank{rank}, tag, {});
      fabric->send(transfers[2 * static_cast<std::size_t>(rank) + 1], Rank{rank}, tag, {});
    }
  }
  for (Transfer& transfer : transfers) {
    if (transfer.state != Transfer::State::idle) {
      expect_done(fabric->wait(transfer, far_away()));
    }
  }
}

/// Peers that live and call their fabrics make memory safe again.
void expect_safe_memory() {
  const auto deadline = far_away();
  while (fabric->memory_unsafe() && Clock::now() < deadline) {
    std::this_thread::yield();
  }
  EXPECT_FALSE(fabric->memory_unsafe());
}

class MpiFabricRanks : public testing::Test {
 protected:
  void SetUp() override {
    if (fabric->size() < 2) {
      GTEST_SKIP() << "needs a peer";
    }
  }
};

TEST(MpiWorldOfRanks, KnowsItsLibraryAndThatItsRanksLive) {
  EXPECT_EQ(world->library().find(mpi_of_this_build()), 0U) << world->library();
  EXPECT_NE(world->library().find_first_of("0123456789"), std::string::npos) << world->library();
  for (int rank = 0; rank < world->size(); ++rank) {
    EXPECT_FALSE(world->is_certainly_dead(Rank{rank}));
  }
}

TEST_F(MpiFabricRanks, PassManySizesAroundARing) {
  std::uint32_t sequence = 0;
  for (const std::size_t bytes : {0UL, 1UL, 64UL, 4095UL, 4096UL, 4097UL, 65536UL, 1UL << 20, 20UL << 20}) {
    const auto sent = pattern(bytes, self().value);
    std::vector<std::byte> came(bytes);
    Transfer send;
    Transfer receive;
    fabric->receive(receive, neighbour(-1), {1, sequence}, came);
    fabric->send(send, neighbour(1), {1, sequence}, sent);
    expect_done(fabric->wait(send, far_away()));
    expect_done(fabric->wait(receive, far_away()));
    EXPECT_TRUE(came == pattern(bytes, neighbour(-1).value)) << bytes;
    ++sequence;
  }
}

TEST_F(MpiFabricRanks, TellApartTagsOfTwoEpochsAndFarSequences) {
  const Tag tags[] = {{2, 0}, {3, 0}, {2, 1}, {3, 100'000}, {2, 0xFFFFFFFF}, {1000, 5}};
  std::vector<Transfer> sends(std::size(tags));
  std::vector<Transfer> receives(std::size(tags));
  std::vector<std::uint32_t> out(std::size(tags));
  std::vector<std::uint32_t> in(std::size(tags));
  for (std::size_t i = 0; i < std::size(tags); ++i) {
    out[i] = tags[i].epoch * 1'000'003 + tags[i].sequence;
    fabric->send(sends[i], neighbour(1), tags[i], std::as_bytes(std::span(&out[i], 1)));
  }
  for (std::size_t i = std::size(tags); i-- > 0;) {
    fabric->receive(receives[i], neighbour(-1), tags[i], std::as_writable_bytes(std::span(&in[i], 1)));
  }
  for (std::size_t i = 0; i < std::size(tags); ++i) {
    expect_done(fabric->wait(sends[i], far_away()));
    expect_done(fabric->wait(receives[i], far_away()));
  }
  EXPECT_EQ(in, out);
}

TEST_F(MpiFabricRanks, StopWaitingAtTheDeadline) {
  std::vector<std::byte> never(1000);
  Transfer receive;
  fabric->receive(receive, neighbour(-1), {4, 0}, never);
  const auto begin = Clock::now();
  const Outcome outcome = fabric->wait(receive, begin + std::chrono::milliseconds(20));
  EXPECT_EQ(outcome.kind, Kind::timed_out);
  EXPECT_EQ(outcome.peer, neighbour(-1));
  EXPECT_GE(Clock::now() - begin, std::chrono::milliseconds(20));
  EXPECT_FALSE(fabric->memory_unsafe());
  meet({4, 1});
}

/// The sender gives up a message that was not received yet and overwrites its memory; the receiver comes later.
TEST_F(MpiFabricRanks, NeverReceiveAMessageThatWasGivenUp) {
  for (std::uint32_t round = 0; round < 12; ++round) {
    const std::size_t bytes = round % 4 == 0 ? 40'000'000 : round % 4 == 1 ? 100'000 : 32;
    auto sent = pattern(bytes, self().value);
    std::vector<std::byte> came(bytes);
    Transfer send;
    Transfer receive;
    fabric->send(send, neighbour(1), {5, 3 * round}, sent);
    fabric->cancel(send);
    std::ranges::fill(sent, std::byte{0xEE});
    if (!fabric->memory_unsafe()) {
      sent = {};  // large enough that the pages go back to the system
    }
    meet({5, 3 * round + 1});
    fabric->receive(receive, neighbour(-1), {5, 3 * round}, came);
    const Outcome outcome = fabric->wait(receive, Clock::now() + std::chrono::milliseconds(2));
    EXPECT_EQ(outcome.kind, Kind::timed_out) << outcome.reason;
    expect_safe_memory();
    meet({5, 3 * round + 2});
  }
}

/// As above, but both ends race: whoever is told that it is done has the bytes.
TEST_F(MpiFabricRanks, AgreeOnWhatIsWrittenWhenBothGiveUpAtOddMoments) {
  int done = 0;
  for (std::uint32_t round = 0; round < 60; ++round) {
    const std::size_t bytes = 1'000'000 + round;
    auto sent = pattern(bytes, self().value);
    std::vector<std::byte> came(bytes);
    Transfer send;
    Transfer receive;
    fabric->receive(receive, neighbour(-1), {6, 2 * round}, came);
    fabric->send(send, neighbour(1), {6, 2 * round}, sent);
    const auto deadline = Clock::now() + std::chrono::microseconds(20 * round);
    (void)fabric->wait(send, deadline);
    std::ranges::fill(sent, std::byte{0xEE});
    const Outcome outcome = fabric->wait(receive, deadline);
    if (outcome.ok()) {
      ++done;
      EXPECT_TRUE(came == pattern(bytes, neighbour(-1).value)) << "round " << round;
    } else {
      EXPECT_EQ(outcome.kind, Kind::timed_out) << outcome.reason;
    }
    const auto kept = came;
    meet({6, 2 * round + 1});
    EXPECT_TRUE(came == kept) << "round " << round;
  }
  RecordProperty("done", done);
}

TEST_F(MpiFabricRanks, HoldThousandsOfSmallMessages) {
  constexpr std::uint32_t kMessages = 3000;
  std::vector<std::uint32_t> out(kMessages);
  std::vector<std::uint32_t> in(kMessages);
  std::iota(out.begin(), out.end(), 17U);
  std::vector<Transfer> sends(kMessages);
  std::vector<Transfer> receives(kMessages);
  for (std::uint32_t i = 0; i < kMessages; ++i) {
    fabric->send(sends[i], neighbour(1), {7, i}, std::as_bytes(std::span(&out[i], 1)));
    fabric->receive(receives[i], neighbour(-1), {7, i}, std::as_writable_bytes(std::span(&in[i], 1)));
  }
  for (std::uint32_t i = kMessages; i-- > 0;) {
    expect_done(fabric->wait(receives[i], far_away()));
    expect_done(fabric->wait(sends[i], far_away()));
  }
  EXPECT_EQ(in, out);
}

TEST_F(MpiFabricRanks, HandleLengthsThatDiffer) {
  std::uint32_t sequence = 0;
  for (const auto& [sent_bytes, expected_bytes] : {std::pair{10U, 9U},
                                                   {9U, 10U},
                                                   {1'000'000U, 10U},
                                                   {10U, 1'000'000U},
                                                   {5'000U, 4'000U},
                                                   {4'000U, 500'000U},
                                                   {100'000U, 0U},
                                                   {0U, 100'000U}}) {
    const std::vector<std::byte> sent(sent_bytes);
    std::vector<std::byte> came(expected_bytes);
    Transfer send;
    Transfer receive;
    fabric->receive(receive, neighbour(-1), {8, sequence}, came);
    fabric->send(send, neighbour(1), {8, sequence}, sent);
    EXPECT_EQ(fabric->wait(receive, far_away()).kind, Kind::mismatch) << sent_bytes << " " << expected_bytes;
    expect_done(fabric->wait(send, far_away()));
    ++sequence;
  }
}

#ifdef HAS_CONTRACT
/// Last, as its last claim cuts a link.
class ZContractOverMpi : public testing::TestWithParam<FabricClaim> {};

TEST_P(ZContractOverMpi, Holds) {
  if (fabric->size() != fabric_contract::kRanks) {
    GTEST_SKIP() << "needs three ranks";
  }
  GetParam().run(*fabric);
}

INSTANTIATE_TEST_SUITE_P(Mpi, ZContractOverMpi, testing::ValuesIn(kFabricClaims),
                         [](const auto& claim) { return std::string(claim.param.name); });
#endif

}  // namespace
}  // namespace distbelief

int main(int argc, char** argv) {
  using namespace distbelief;
  testing::InitGoogleTest(&argc, argv);
  MpiWorld made_world(far_away());
  world = &made_world;
  introduce(made_world);
  auto made_fabric = std::make_unique<MpiFabric>(made_world);
  fabric = made_fabric.get();
  testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();
  if (made_world.rank().value != 0) {
    delete listeners.Release(listeners.default_result_printer());
  }
  listeners.Append(new FailureLines(made_world.rank()));
  const int code = RUN_ALL_TESTS();
  std::fflush(stdout);
  if (code == 0) {
    say(fmt::format("rank {} passed", made_world.rank().value));
  }
  made_fabric.reset();
  const bool leave = code != 0 || (argc > 1 && std::strcmp(argv[1], "--leave") == 0);
  if (made_world.finish(leave ? Clock::now() : far_away())) {
    say(fmt::format("rank {} finalized", made_world.rank().value));
  }
  ::_exit(code);
}
