#include "transport/locked/locked_fabric.h"

#include "transport/fabric_contract.h"
#include "transport/local/local_fabric.h"

namespace distbelief {
namespace {

std::vector<std::unique_ptr<Fabric>> make_locked_fabrics(int ranks) {
  std::vector<std::unique_ptr<Fabric>> fabrics = make_local_fabrics(ranks);
  for (std::unique_ptr<Fabric>& fabric : fabrics) {
    fabric = std::make_unique<LockedFabric>(std::move(fabric));
  }
  return fabrics;
}

DISTBELIEF_INSTANTIATE_FABRIC_CONTRACT(Locked, make_locked_fabrics)

TEST(LockedFabric, ThreadsOfAProcessWaitForTransfersOfTheirOwn) {
  constexpr int kThreads = 3;
  constexpr std::uint32_t kMessages = 200;
  const auto fabrics = make_locked_fabrics(2);
  std::vector<std::jthread> threads;
  for (std::uint32_t thread = 0; thread < kThreads; ++thread) {
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&fabric = *fabrics[static_cast<std::size_t>(rank)], thread, rank] {
        for (std::uint32_t i = 0; i < kMessages; ++i) {
          const Clock::time_point deadline = Clock::now() + std::chrono::minutes(1);
          const std::uint64_t sent = 1000 * thread + i;
          std::uint64_t got = 0;
          Transfer out;
          Transfer in;
          fabric.receive(in, Rank{1 - rank}, {thread, i}, std::as_writable_bytes(std::span(&got, 1)));
          fabric.send(out, Rank{1 - rank}, {thread, i}, std::as_bytes(std::span(&sent, 1)));
          ASSERT_TRUE(fabric.wait(in, deadline).ok());
          ASSERT_TRUE(fabric.wait(out, deadline).ok());
          ASSERT_EQ(got, sent);
        }
      });
    }
  }
}

}  // namespace
}  // namespace distbelief
